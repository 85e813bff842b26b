"""What each browser tool does to a session; every action returns the fields of its result."""

import json
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import urlsplit

from playwright.async_api import Error, Locator, TimeoutError

from clotho.plugins.browser.process.downloads import REFUSED, downloaded
from clotho.plugins.browser.process.screenshots import screenshot
from clotho.plugins.browser.process.session import ACTION_SECONDS, BLANK, Fields, Session

SCHEMES = ("http", "https")
# goto raises a plain Error with this text for an address that is a download
DOWNLOAD = "Download is starting"
MOST_IMAGES = 50
MOST_VALUE_CHARS = 8_000
# a page can replace Array.prototype.map and the like, so even lists that scripts here make have any size
MOST_RESULT_CHARS = 1 << 20
MILLISECONDS = 1000.0
SCROLL = "(down) => window.scrollBy(0, (down ? 1 : -1) * 0.8 * window.innerHeight)"
IMAGES = f"""() => [...document.images].slice(0, {MOST_IMAGES}).map(image => ({{
    src: image.currentSrc.slice(0, 500), alt: image.alt.slice(0, 500),
    width: image.naturalWidth, height: image.naturalHeight,
}}))"""

Action = Callable[[Session, dict[str, Any]], Awaitable[Fields]]


class Problem(Exception):
    """What the model is told of an action that can't be done."""


async def navigate(session: Session, arguments: dict[str, Any]) -> Fields:
    url = arguments["url"].strip()
    url = url if "://" in url or url.startswith("about:") else f"http://{url}"
    if urlsplit(url).scheme.lower() not in SCHEMES and url != BLANK:
        raise Problem(f"Only http and https pages can be opened, not {url[:100]}")
    # refusals that requests of the page before met would be told as this one's
    session.proxy.refusals.clear()
    try:
        going = session.page.goto(url, wait_until="domcontentloaded", timeout=session.seconds * MILLISECONDS)
        await session.until_dialog(going)
    except TimeoutError:
        raise Problem(f"The page didn't load within {session.seconds:g} s") from None
    except Error as error:
        if DOWNLOAD in error.message:
            await session.until_download()
            told = await downloaded(session)
            if "files" not in session.attached:
                raise Problem(told.get("warning", REFUSED)) from None
            return {**await session.place(), **told}
        raise Problem(_refusal(session) or said(error)) from None
    await session.settle()
    # over http the proxy's own 403 is a page that loads; over https a refused CONNECT fails above
    if refused := session.proxy.refusals.get((urlsplit(session.page.url).hostname or "").lower()):
        raise Problem(f"Refused: {refused}")
    return {**await session.place(), **await session.snapshot()}


async def snapshot(session: Session, arguments: dict[str, Any]) -> Fields:
    return {**await session.place(), **await session.snapshot(arguments.get("full", False))}


async def click(session: Session, arguments: dict[str, Any]) -> Fields:
    element = await _element(session, arguments)
    await session.until_dialog(element.click(timeout=ACTION_SECONDS * MILLISECONDS))
    return {"clicked": arguments["ref"], **await _after(session)}


async def type_(session: Session, arguments: dict[str, Any]) -> Fields:
    element, text = await _element(session, arguments), arguments["text"]
    timeout = ACTION_SECONDS * MILLISECONDS
    kind = await session.until_dialog(element.evaluate("element => element.tagName", timeout=timeout))
    if kind == "SELECT":
        await session.until_dialog(element.select_option(text, timeout=timeout))
    else:
        await session.until_dialog(element.fill(text, timeout=timeout))
    return {"typed": text, "element": arguments["ref"], **await _after(session)}


async def scroll(session: Session, arguments: dict[str, Any]) -> Fields:
    await session.until_dialog(session.page.evaluate(SCROLL, arguments["direction"] == "down"))
    return {"scrolled": arguments["direction"], **await _after(session)}


async def press(session: Session, arguments: dict[str, Any]) -> Fields:
    await session.until_dialog(session.page.keyboard.press(arguments["key"]))
    return {"pressed": arguments["key"], **await _after(session)}


async def back(session: Session, arguments: dict[str, Any]) -> Fields:
    going = session.page.go_back(wait_until="domcontentloaded", timeout=session.seconds * MILLISECONDS)
    # None alone isn't enough: go_back also returns it for a change of the fragment. Every tab begins at BLANK
    if await session.until_dialog(going) is None and session.dialog is None and session.page.url == BLANK:
        raise Problem("There is no page to go back to")
    return await _after(session)


async def get_images(session: Session, arguments: dict[str, Any]) -> Fields:
    images: list[Fields] = await session.until_dialog(session.page.evaluate(IMAGES)) or []
    return {"images": images, "count": len(images)}


async def console(session: Session, arguments: dict[str, Any]) -> Fields:
    if expression := arguments.get("expression"):
        # evaluate turns a page's dates and URLs into Python objects that JSON has no type for
        value = json.dumps(await session.until_dialog(session.page.evaluate(expression)), default=str)
        if len(value) > MOST_VALUE_CHARS:
            return {"result": f"{value[:MOST_VALUE_CHARS]} [… {len(value):,} characters]"}
        return {"result": json.loads(value)}
    messages, errors = list(session.console), list(session.errors)
    if arguments.get("clear", False):
        session.console.clear()
        session.errors.clear()
    counts = {"total_messages": len(messages), "total_errors": len(errors)}
    return {"console_messages": messages, "js_errors": errors, **counts}


async def dialog(session: Session, arguments: dict[str, Any]) -> Fields:
    asked = session.dialog
    if asked is None:
        raise Problem("No dialog is open")
    answered = {"type": asked.type, "message": asked.message[:500]}
    if arguments["action"] == "accept":
        text = arguments.get("prompt_text")
        await (asked.accept(text) if text is not None and asked.type == "prompt" else asked.accept())
    else:
        await asked.dismiss()
    # the page may have opened the next one by now
    if session.dialog is asked:
        session.dialog = None
    await session.finish()
    return {"action": arguments["action"], "dialog": answered, **await _after(session)}


ACTIONS: dict[str, Action] = {
    "browser_back": back,
    "browser_click": click,
    "browser_console": console,
    "browser_dialog": dialog,
    "browser_get_images": get_images,
    "browser_navigate": navigate,
    "browser_press": press,
    "browser_scroll": scroll,
    "browser_snapshot": snapshot,
    "browser_type": type_,
    "browser_vision": screenshot,
}


def bounded(fields: Fields) -> Fields:
    """The fields of a result, checked to be JSON of a size that can be sent; raises Problem, ValueError."""
    size = len(json.dumps(fields))
    if size > MOST_RESULT_CHARS:
        raise Problem(f"The result has {size:,} characters, too many to be shown")
    return fields


async def _after(session: Session) -> Fields:
    """The fields of an action that may have led to another page."""
    await session.settle()
    told = await downloaded(session)
    pending = {"pending_dialog": shown} if (shown := session.asked) else {}
    return {**await session.place(), **told, **pending}


async def _element(session: Session, arguments: dict[str, Any]) -> Locator:
    """Find the element of a ref; raises Problem at once for none, since only snapshots give elements refs."""
    ref = arguments["ref"].strip().removeprefix("@").removeprefix("ref=")
    found: Locator = session.page.get_by_ref(ref)
    if await session.until_dialog(found.count()) == 0:
        raise Problem(
            f"No element of this page has the ref {ref[:20]}: take a snapshot, refs are those of the latest"
        )
    return found


def _refusal(session: Session) -> str | None:
    # any host's: a redirect may have led to another one than the model named
    return next((f"Refused: {reason}" for reason in session.proxy.refusals.values()), None)


def said(error: Error) -> str:
    """The error's first line, without the name of Playwright's method."""
    return error.message.splitlines()[0].partition(": ")[2][:500] or "The page failed"
