"""HTTP requests as a hostile or broken client would send them: any bytes, close to what a server expects."""

import asyncio
import gzip
import json
import re
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass
from random import Random
from typing import Any

from tests.fuzz.runner import character, mutated
from tests.support import PATIENCE_SECONDS

GRACE_SECONDS = 0.2
FRAGMENTS = (
    "NaN",
    "Infinity",
    "-1e999",
    "9" * 400,
    "[" * 300,
    "{",
    "}",
    '"',
    "\\ud800",
    "null",
    "true",
    ",",
    "\0",
)
VALUES: tuple[Any, ...] = (
    None,
    True,
    0,
    -1,
    1,
    2**31,
    2**63,
    -(2**63) - 1,
    10**400,
    0.5,
    -0.0,
    5e-324,
    1e308,
    float("nan"),
    float("inf"),
    "",
    "x",
    "\0",
    "\udcff",
    "<|im_end|>",
    "9" * 5_000,
    "x" * 100_000,
    [],
    [[]],
    {},
    {"": {}},
    [0] * 5_000,
    [[[[[[[[[]]]]]]]]],
)
HEADERS = (
    (b"content-type", b"text/plain"),
    (b"content-encoding", b"gzip"),
    (b"content-encoding", b"br"),
    (b"accept-encoding", b"gzip"),
    (b"origin", b"null"),
    (b"host", b"\xff"),
    (b"authorization", b"Basic \xff"),
    (b"transfer-encoding", b"chunked"),
    (b"content-length", b"5"),
    (b"content-length", b"99999999999999999999"),
    (b"expect", b"100-continue"),
    (b"upgrade", b"websocket"),
    (b"connection", b"upgrade"),
    (b"x-forwarded-for", b"1.2.3.4"),
    (b"x" * 300, b"y" * 3_000),
)


@dataclass(frozen=True)
class RawRequest:
    """Bytes for one connection. What isn't a whole request may never be answered."""

    content: bytes
    whole: bool
    leaves: bool
    """Without waiting for an answer."""


@dataclass(frozen=True)
class Endpoint:
    """A request that is as it should be."""

    method: str
    path: str
    body: Any = None


def request(random: Random, endpoints: Sequence[Endpoint]) -> RawRequest:
    endpoint = random.choice(endpoints)
    body = _body(random, endpoint.body)
    headers = [(b"host", b"127.0.0.1"), (b"connection", b"close"), (b"content-type", b"application/json")]
    if random.random() < 0.1:
        body = gzip.compress(body)
        body = body[: random.randint(0, len(body))] if random.random() < 0.3 else body
        headers.append((b"content-encoding", b"gzip"))
    length = len(body) + (random.choice((-1, 1, 1_000)) if random.random() < 0.02 else 0)
    headers.append((b"content-length", b"%d" % max(length, 0)))
    if odd := random.random() < 0.1:
        headers.insert(random.randint(0, len(headers)), random.choice(HEADERS))
    path = (
        mutated(random, endpoint.path, ("/", "%00", "%ff", "..", "?", "#"))
        if random.random() < 0.05
        else None
    )
    line = f"{endpoint.method} {path or endpoint.path} HTTP/1.1\r\n".encode(errors="surrogatepass")
    content = whole = line + b"".join(b"%b: %b\r\n" % header for header in headers) + b"\r\n" + body
    if random.random() < 0.05:
        at = random.randint(0, len(content))
        content = content[:at] + random.randbytes(random.randint(0, 20)) + content[at:]
    if random.random() < 0.05:
        content = content[: random.randint(0, len(content))]
    certain = content == whole and length == len(body) and not odd
    return RawRequest(content, certain, leaves=random.random() < 0.05)


def _body(random: Random, expected: Any) -> bytes:
    if expected is None and random.random() < 0.9:
        return b""
    value = deepcopy(expected)
    for _ in range(random.choice((0, 1, 1, 1, 2, 3))):
        value = _changed(random, value)
    text = json.dumps(value)
    if random.random() < 0.1:
        text = mutated(random, text, FRAGMENTS)
    return text.encode(errors="surrogatepass")


def _changed(random: Random, value: Any) -> Any:
    """`value` with something in it replaced, left out, repeated or added."""
    if isinstance(value, dict) and value and random.random() < 0.85:
        name = random.choice(list(value))
        match random.randrange(5):
            case 0:
                del value[name]
            case 1:
                value[name + character(random)] = value[name]
            case _:
                value[name] = _changed(random, value[name])
        return value
    if isinstance(value, list) and value and random.random() < 0.7:
        at = random.randrange(len(value))
        match random.randrange(5):
            case 0:
                del value[at]
            case 1:
                value += [value[at]] * random.choice((1, 50))
            case _:
                value[at] = _changed(random, value[at])
        return value
    return deepcopy(random.choice(VALUES))


async def answer_to(request: RawRequest, port: int) -> int | None:
    """The status of the answer, None where the connection is closed without one. Raises TimeoutError."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            writer.write(request.content)
            await writer.drain()
            if request.leaves:
                return None
            if not request.whole:
                asyncio.get_running_loop().call_later(GRACE_SECONDS, _end, writer)
            while (head := await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 100 "):
                pass
    except (ConnectionError, asyncio.IncompleteReadError):
        assert not request.whole
        return None
    finally:
        writer.close()
    found = re.match(rb"HTTP/1\.1 (\d{3}) ", head)
    assert found is not None, head
    return int(found[1])


def _end(writer: asyncio.StreamWriter) -> None:
    if not writer.is_closing():
        writer.write_eof()
