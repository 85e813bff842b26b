"""A page whose buttons leave marks, run in the sandbox for each request: a program of its own."""

import sys
import time
from pathlib import Path

MARKS = Path("/work/.ran")


def page() -> str:
    done = MARKS.read_text().split() if MARKS.exists() else []
    forms = "".join(
        f'<form method="post" action="/{call}/{seconds}"><button>{call} in {seconds} s</button></form>'
        for call in sys.argv[1].split(",")
        for seconds in sys.argv[2].split(",")
    )
    head = "<!doctype html><title>Marks</title><link rel=icon href='data:,'>"
    return f"{head}<p>{' '.join(['Done:', *done])}</p>{forms}"


def main() -> None:
    method, target, _ = sys.stdin.buffer.readline().decode().split(" ", 2)
    if method == "POST":
        _, call, seconds = target.rsplit("/", 2)
        with MARKS.open("a") as file:
            file.write(f"{call}\n")
        time.sleep(float(seconds))
        head, body = "303 See Other\r\nLocation: /", b""
    else:
        head, body = "200 OK\r\nContent-Type: text/html", page().encode()
    lines = f"HTTP/1.1 {head}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    sys.stdout.buffer.write(lines.encode() + body)


if __name__ == "__main__":
    main()
