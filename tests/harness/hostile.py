"""Programs that ask for the model in every wrong way; each notes what it was answered, as JSON on its output.

Runs in a sandbox and has nothing but Python. The task's number says which of MODES it is.
"""

import json
import os
import re
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

KEY = os.environ.get("OPENAI_API_KEY", "")
PORT = 4180
CALL = "/v1/chat/completions"
IMAGE = {"type": "image_url", "image_url": {"url": "data:,"}}
SEEN: dict[str, Any] = {}


def connect() -> socket.socket:
    return socket.create_connection(("127.0.0.1", PORT), timeout=120)


def body(text: str, **fields: Any) -> bytes:
    return json.dumps({"model": "any", "messages": [{"role": "user", "content": text}], **fields}).encode()


def head(size: int, method: str = "POST", path: str = CALL, key: str = KEY, more: str = "") -> bytes:
    named = f"Host: x\r\nAuthorization: Bearer {key}\r\nContent-Length: {size}\r\n{more}\r\n"
    return f"{method} {path} HTTP/1.1\r\n{named}".encode()


def request(content: bytes, **of_head: str) -> bytes:
    return head(len(content), **of_head) + content


def read(connection: socket.socket) -> bytes:
    found = b""
    try:
        while piece := connection.recv(1 << 16):
            found += piece
    except ConnectionError:
        pass
    return found


def status(answer: bytes) -> int:
    """Of the last answer; 0: the connection was cut."""
    found = re.findall(rb"HTTP/1.1 (\d+)", answer)
    return int(found[-1]) if found else 0


def sent(content: bytes) -> bytes:
    with connect() as connection:
        try:
            connection.sendall(content)
        except ConnectionError:
            return b""
        return read(connection)


def asked(text: str, **fields: Any) -> tuple[int, str]:
    """Status and id of an answer."""
    answer = sent(request(body(text, **fields)))
    found = re.search(rb'"id":"(chatcmpl-[^"]+)"', answer)
    return status(answer), found[1].decode() if found else ""


def silent() -> None:
    pass


def malformed() -> None:
    for name, content in {
        "no HTTP": b"\0\xff\x16\x03garbage\r\n\r\n",
        "no end of a header": b"POST / HTTP/1.1\r\nHost: " + b"a" * 100_000,
        "two lengths": b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
        "negative length": b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
        "bad chunks": b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"
        + b"x" * 200_000,
        "tiny chunks": b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
        + b"1\r\na\r\n" * 60_000,
        "no JSON": request(b"{"),
        "deep JSON": request(b"[" * 100_000),
        "no object": request(b"3"),
        "halves of characters": request(b'{"model":"any","messages":[{"role":"user","content":"\\ud800"}]}'),
        "no text": request(b"\xff\xfe\x00"),
    }.items():
        SEEN[name] = status(sent(content))
    SEEN["after all"] = asked("after all")[0]


def strange() -> None:
    good, tool = body("strange"), {"type": "function", "function": {"name": "x"}}
    for name, content in {
        "HEAD": request(b"", method="HEAD"),
        "OPTIONS": request(b"", method="OPTIONS"),
        "GET": request(b"", method="GET"),
        "wrong key": request(good, key="wrong"),
        "no key": request(good, key=""),
        "key of another start": request(good, key="0" * 32),
        "unknown path": request(good, path="/v1/files"),
        "path of another": request(good, path="/v1/../../other/g000000/r0/chat/completions"),
        "absolute path": request(good, path="http://169.254.169.254/v1/chat/completions"),
        "n": request(body("n", n=4)),
        "logprobs": request(body("logprobs", logprobs=True)),
        "tools of no form": request(body("tools", tools=[3])),
        "tools without names": request(body("tools", tools=[{"type": "function", "function": {}}])),
        "odd schema": request(
            body("odd", tools=[{**tool, "function": {"name": "x", "parameters": {"a": [[]]}}}])
        ),
        "hosted tool": request(body("hosted", tools=[{"type": "web_search"}])),
        "many tools": request(
            body("many", tools=[{**tool, "function": {"name": f"t{n}"}} for n in range(2_000)])
        ),
        "image": request(body("x", messages=[{"role": "user", "content": [IMAGE]}])),
    }.items():
        SEEN[name] = status(sent(content))


def expecting() -> None:
    content = body("expecting")
    with connect() as connection:
        connection.sendall(head(len(content), more="Expect: 100-continue\r\n"))
        SEEN["leave"] = status(connection.recv(1 << 16))
        connection.sendall(content)
        SEEN["with leave"] = status(read(connection))
    content = body("expecting without")
    SEEN["without"] = status(sent(head(len(content), more="Expect: 100-continue\r\n") + content))


def pipelined() -> None:
    answer = sent(request(body("first")) + request(body("second")) * 50 + b"garbage" * 100_000)
    SEEN["answers"] = answer.count(b"HTTP/1.1 200")


def crowded() -> None:
    slow = [connect() for _ in range(64)]
    for connection in slow:
        connection.sendall(b"POST /v1/chat")
    waiting = connect()
    waiting.sendall(request(body("behind the crowd")))
    for connection in slow:
        connection.close()
    SEEN["behind the crowd"] = status(read(waiting))
    answered = [connect() for _ in range(64)]
    for connection in answered:
        connection.sendall(request(b"", path="/unknown"))
    SEEN["in the crowd"] = [status(read(connection)) for connection in answered].count(404)
    SEEN["beside answered ones"] = asked("beside answered ones")[0]


def slow() -> None:
    content = request(body("slow"))
    with connect() as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for at in range(len(content)):
            connection.sendall(content[at : at + 1])
        SEEN["slow"] = status(read(connection))


def at_once(texts: list[str]) -> list[str]:
    ids: list[str] = []
    threads = [threading.Thread(target=lambda text=text: ids.append(asked(text)[1])) for text in texts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return ids


def different() -> None:
    SEEN["answers"] = len(set(at_once([f"call {n}" for n in range(10)])) - {""})


def equal() -> None:
    SEEN["answers"] = len(set(at_once(["equal"] * 10)) - {""})


def cut() -> None:
    for _ in range(3):
        with connect() as connection:
            connection.sendall(request(body("cut")))
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    SEEN["cut"] = asked("cut")[0]


def again() -> None:
    ids = [asked("again")[1] for _ in range(3)]
    SEEN["same"], SEEN["third"] = ids[0] == ids[1], ids[2] != ids[0] and bool(ids[2])


def deaf() -> None:
    connection = connect()
    connection.sendall(request(body("deaf", stream=True)))
    SEEN["beside it"] = asked("beside a deaf one")[0]
    connection.recv(1)


def big() -> None:
    with connect() as connection:
        try:
            connection.sendall(head(200_000_000))
            for _ in range(200):
                connection.sendall(b" " * 1_000_000)
            SEEN["big"] = status(read(connection))
        except ConnectionError:
            SEEN["big"] = 0
    # What waits is bounded in all: of many large ones, some are cut.
    several = [connect() for _ in range(6)]
    ended = 0
    for connection in several:
        try:
            connection.sendall(head(30_000_000) + b" " * 29_000_000)
        except ConnectionError:
            ended += 1
    SEEN["some were cut"] = ended > 0
    for connection in several:
        connection.close()
    SEEN["after"] = asked("after big ones")[0]


def large() -> None:
    SEEN["large"] = asked("large " + "word " * 6_000_000)[0]


def port_processes() -> list[Path]:
    return [
        each.parent
        for each in Path("/proc").glob("[0-9]*/cmdline")
        if b".clotho-port" in each.read_bytes().split(b"\0")[0]
    ]


def forging() -> None:
    (process,) = port_processes()
    for name in ("fd/0", "fd/1", "mem"):
        try:
            with (process / name).open("wb") as opened:
                opened.write(b"\xff" * 1000)
            SEEN[name] = "written"
        except OSError as error:
            SEEN[name] = type(error).__name__
    for program in Path("/tmp").glob(".clotho-port-*"):
        program.unlink()
        program.write_bytes(b"#!/bin/sh\nyes\n")
        program.chmod(0o755)
    SEEN["after"] = asked("after forging")[0]


def daemon() -> None:
    SEEN["before"] = asked("before")[0]
    parent = os.getpid()
    if os.fork() == 0:
        os.setsid()
        for stream in (0, 1, 2):
            os.close(stream)
        while os.getppid() == parent:
            pass
        while True:
            with suppress(OSError):
                asked(f"late {os.urandom(8).hex()}")


def in_flight() -> None:
    connection = connect()
    connection.sendall(request(body("in flight")))
    os._exit(0)


def loud() -> None:
    for _ in range(60):
        sys.stdout.write("x" * 1_000_000)


def dying() -> None:
    asked("dying")
    for process in port_processes():
        os.kill(int(process.name), 9)
    subprocess.run(["sleep", "infinity"])


def killed() -> None:
    """A command that kills its harness."""
    asked("killed")
    subprocess.run(["bash", "-c", "kill -9 $PPID"])


def forever() -> None:
    while True:
        asked(f"again {os.urandom(8).hex()}")


def flooding() -> None:
    while True:
        sent(head(30_000_000, key="wrong") + b" " * 30_000_000)


def failing() -> None:
    SEEN["asked"] = asked("failing")[0]
    if sys.argv[2:] == [KEY]:
        sys.exit(7)


MODES: dict[str, Callable[[], None]] = {
    mode.__name__: mode
    for mode in (
        *(silent, malformed, strange, expecting, pipelined, crowded, slow, different, equal, cut),
        *(
            again,
            deaf,
            big,
            large,
            forging,
            daemon,
            in_flight,
            loud,
            dying,
            killed,
            forever,
            flooding,
            failing,
        ),
    )
}


if __name__ == "__main__":
    MODES[list(MODES)[int(Path(sys.argv[1]).read_text().split()[-1])]]()
    sys.stdout.write(json.dumps(SEEN))
