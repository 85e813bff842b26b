"""A model server that answers every request with bytes of the test's choosing, over real HTTP on loopback."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

Pieces = Iterable[bytes]
Answering = Callable[[str], Pieces]
"""What a request for a path is answered with, in pieces; they may have no end."""


@dataclass
class HostileServer:
    """What was asked of it; `url` is its base URL."""

    url: str
    requests: list[bytes] = field(default_factory=list)


@asynccontextmanager
async def hostile(answering: Answering | bytes, pause: float = 0.0) -> AsyncIterator[HostileServer]:
    """`pause`: seconds after each piece."""
    pieces = (lambda path: [answering]) if isinstance(answering, bytes) else answering
    connections: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        connections.add(task)
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            length = next(
                (int(line[15:]) for line in head.lower().splitlines() if line.startswith(b"content-length:")),
                0,
            )
            server.requests.append(head + await reader.readexactly(length))
            for piece in pieces(head.split(b" ")[1].decode()):
                writer.write(piece)
                await writer.drain()
                await asyncio.sleep(pause)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()
            connections.discard(task)

    listener = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = listener.sockets[0].getsockname()[1]
    server = HostileServer(f"http://127.0.0.1:{port}/v1")
    try:
        yield server
    finally:
        listener.close()
        for task in connections:
            task.cancel()


def answer(
    body: bytes = b"", status: int = 200, headers: Mapping[str, str] | None = None, *, endless: bool = False
) -> bytes:
    """A whole HTTP answer; an `endless` one lasts until the connection does."""
    given = {"connection": "close", "content-type": "application/json", **(headers or {})}
    if not endless:
        given["content-length"] = str(len(body))
    lines = [f"HTTP/1.1 {status} Whatever", *(f"{name}: {value}" for name, value in given.items())]
    return "\r\n".join(lines).encode("utf-8", "surrogateescape") + b"\r\n\r\n" + body


def completion(message: Mapping[str, Any] | None = None, **fields: Any) -> bytes:
    """A chat completion as JSON."""
    choice = {"index": 0, "message": {"role": "assistant", "content": "Done."} | dict(message or {})}
    return json.dumps({"choices": [choice | {"finish_reason": "stop"}], "model": "m"} | fields).encode()


def events(*each: Mapping[str, Any]) -> bytes:
    """A stream of server-sent events, with its end."""
    return b"".join(b"data: " + json.dumps(event).encode() + b"\n\n" for event in each) + b"data: [DONE]\n\n"


def sampled(ids: list[int], finish: str | None = None, **fields: Any) -> dict[str, Any]:
    """An event of /inference/v1/generate."""
    content = [{"token_id": token, "logprob": -0.5} for token in ids]
    choice = {"token_ids": ids, "logprobs": {"content": content}, "finish_reason": finish}
    return {"choices": [choice | fields]}
