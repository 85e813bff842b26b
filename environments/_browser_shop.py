"""A small shop, run in the sandbox once for each request: the request on its input, the answer on its output.

It is a program of its own, which knows nothing of this package; its state is the JSON file beside it.
"""

import html
import json
import os
import sys
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

LINKS = (("/", "Goods"), ("/cart", "Cart"), ("/contact", "Contact"), ("/news", "Newsletter"))
State = dict[str, Any]
Asked = dict[str, str]

STATE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "state.json")
GOODS = {
    "linen-blue": ("Blue linen thread", 4.50, "thread"),
    "linen-red": ("Red linen thread", 4.75, "thread"),
    "wool-grey": ("Grey wool yarn", 6.20, "yarn"),
    "wool-white": ("White wool yarn", 5.90, "yarn"),
    "wool-green": ("Green wool yarn", 7.10, "yarn"),
    "scissors": ("Tailor's scissors", 18.00, "tool"),
    "spindle": ("Drop spindle", 12.40, "tool"),
    "needles": ("Pack of needles", 3.30, "tool"),
}


def page(title: str, body: str) -> str:
    links = "".join(
        f'<a href="{path}">{name}</a> '
        for path, name in (
            ("/", "Goods"),
            ("/cart", "Cart"),
            ("/contact", "Contact"),
            ("/news", "Newsletter"),
        )
    )
    head = f"<!doctype html><title>{title}</title><link rel=icon href='data:,'>"
    return f"{head}<nav>{links}</nav><h1>{title}</h1>{body}"


def form(action: str, fields: str, button: str) -> str:
    return f'<form method="post" action="{action}">{fields}<button>{button}</button></form>'


def field(name: str, label: str, kind: str = "text") -> str:
    return f'<p><label>{label} <input name="{name}" type="{kind}"></label></p>'


def select(name: str, label: str, options: tuple[str, ...]) -> str:
    inner = "".join(f"<option>{option}</option>" for option in options)
    return f'<p><label>{label} <select name="{name}">{inner}</select></label></p>'


def goods(state: State, asked: Asked, path: str) -> str:
    found = "".join(
        f'<li><a href="/goods/{key}">{html.escape(name)}</a>: {price:.2f} EUR</li>'
        for key, (name, price, _) in GOODS.items()
    )
    return page("Goods", f"<ul>{found}</ul>")


def one(state: State, asked: Asked, path: str) -> str:
    key = path.rpartition("/")[2]
    if key not in GOODS:
        return page("Not found", "<p>There is no such thing.</p>")
    name, price, kind = GOODS[key]
    adding = form(f"/add/{key}", field("number", "Number", "number"), "Add to cart")
    return page(html.escape(name), f"<p>A {kind}, {price:.2f} EUR each.</p>{adding}")


def cart(state: State, asked: Asked, path: str) -> str:
    lines = "".join(
        f"<li>{number} of {html.escape(GOODS[key][0])}"
        + form(f"/remove/{key}", "", f"Remove {html.escape(GOODS[key][0])}")
        + "</li>"
        for key, number in state["cart"].items()
    )
    checkout = '<a href="/checkout">Check out</a>' if lines else "<p>The cart is empty.</p>"
    return page("Cart", f"<ul>{lines}</ul>{checkout}")


def checkout(state: State, asked: Asked, path: str) -> str:
    fields = field("name", "Full name") + field("street", "Street") + field("city", "City")
    return page(
        "Check out", form("/order", fields + select("shipping", "Shipping", ("standard", "express")), "Order")
    )


def contact(state: State, asked: Asked, path: str) -> str:
    fields = field("email", "E-mail") + select("topic", "Topic", ("Goods", "Delivery", "Refund"))
    return page("Contact", form("/message", fields + field("text", "Message"), "Send message"))


def news(state: State, asked: Asked, path: str) -> str:
    fields = field("email", "E-mail") + select("often", "How often", ("daily", "weekly", "monthly"))
    offers = (
        '<p><label><input type="checkbox" name="offers" value="yes" checked> Send me offers, too</label></p>'
    )
    return page("Newsletter", form("/subscribe", fields + offers, "Subscribe"))


def add(state: State, asked: Asked, path: str) -> str:
    key, number = path.rpartition("/")[2], asked.get("number", "")
    if key in GOODS and number.isdecimal() and 0 < int(number) < 100:
        state["cart"][key] = state["cart"].get(key, 0) + int(number)
    return "/cart"


def remove(state: State, asked: Asked, path: str) -> str:
    state["cart"].pop(path.rpartition("/")[2], None)
    return "/cart"


def order(state: State, asked: Asked, path: str) -> str:
    if state["cart"] and all(asked.get(name) for name in ("name", "street", "city")):
        state["orders"].append({**asked, "goods": state["cart"]})
        state["cart"] = {}
        return "/thanks"
    return "/checkout"


def message(state: State, asked: Asked, path: str) -> str:
    state["messages"].append(asked)
    return "/thanks"


def subscribe(state: State, asked: Asked, path: str) -> str:
    state["subscriptions"].append(asked)
    return "/thanks"


def thanks(state: State, asked: Asked, path: str) -> str:
    return page("Thank you", "<p>It is done.</p>")


SHOWN = {
    "": goods,
    "goods": one,
    "cart": cart,
    "checkout": checkout,
    "contact": contact,
    "news": news,
    "thanks": thanks,
}
DONE = {"add": add, "remove": remove, "order": order, "message": message, "subscribe": subscribe}


def main() -> None:
    method, target, _ = sys.stdin.buffer.readline().decode("latin-1").split(" ", 2)
    length = 0
    for line in iter(sys.stdin.buffer.readline, b"\r\n"):
        name, _, value = line.partition(b":")
        length = int(value) if name.lower() == b"content-length" else length
    asked = {name: values[-1] for name, values in parse_qs(sys.stdin.buffer.read(length).decode()).items()}
    path = unquote(urlsplit(target).path)
    with open(STATE) as file:
        state = json.load(file)
    does = (DONE if method == "POST" else SHOWN).get(path.split("/")[1])
    if does is None:
        answer("404 Not Found", page("Not found", ""))
    elif method == "POST":
        place = does(state, asked, path)
        with open(f"{STATE}.new", "w") as file:
            json.dump(state, file)
        os.replace(f"{STATE}.new", STATE)
        answer("303 See Other", "", f"Location: {place}\r\n")
    else:
        answer("200 OK", does(state, asked, path))


def answer(status: str, body: str, headers: str = "") -> None:
    content = body.encode()
    head = f"HTTP/1.1 {status}\r\nContent-Type: text/html; charset=utf-8\r\n{headers}Connection: close\r\n"
    sys.stdout.buffer.write(f"{head}Content-Length: {len(content)}\r\n\r\n".encode() + content)


if __name__ == "__main__":
    main()
