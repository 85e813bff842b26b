"""The gateway of harnesses: what any request costs the worker, whose answer a client of HTTP can read."""

import asyncio
import ctypes
import gc
import json
import struct
import time
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, cast

import h11

from clotho.plugins.harness.digest import Normalization
from clotho.plugins.harness.gateway import Gateway
from clotho.plugins.harness.harnesses import KNOWN
from clotho.plugins.harness.naming import Naming
from clotho.plugins.harness.port import HEAD, MOST_FRAME, MOST_REQUEST_BYTES, READ_BYTES
from clotho.sandbox.backend import SandboxInstance
from tests.event_loop import watched_callbacks
from tests.fuzz.requests import Endpoint, request
from tests.fuzz.runner import Fuzzer
from tests.fuzz.test_tools import Cost, resident
from tests.harness.stages import Turns

KEY = "k" * 32
MOST_PROCESSOR = 2.0
LONGEST_CALLBACK = 0.1
MEMORY_A_BYTE, MEMORY = 40, 64 << 20
"""A value of JSON takes up to 100 bytes of memory, and is read once as JSON and once as a message."""
ATTEMPTS = 4
DATED = "# currentDate\nToday's date is 2026-01-01.\n"
TEXTS = ("word ", "/work/x ", "-work-", DATED, "\\", '"', "\0", "é", "a.b~c-")
TOOL = {
    "name": "x",
    "description": "d",
    "parameters": {"type": "object", "properties": {"a": {"type": "string"}}},
}
CALL = {"id": "c", "type": "function", "function": {"name": "x", "arguments": '{"a": "/work"}'}}
ENDPOINTS = (
    Endpoint(
        "POST",
        "/v1/chat/completions",
        {
            "model": "m",
            "stream": True,
            "messages": [
                {"role": "system", "content": "s"},
                {"role": "user", "content": [{"type": "text", "text": "u"}]},
                {"role": "assistant", "content": "a", "tool_calls": [CALL]},
                {"role": "tool", "tool_call_id": "c", "content": "t"},
            ],
            "tools": [{"type": "function", "function": TOOL}],
        },
    ),
    Endpoint(
        "POST",
        "/v1/responses",
        {
            "model": "m",
            "instructions": "i",
            "input": [
                {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "u"}]},
                {"type": "function_call", "call_id": "c", "name": "x", "arguments": '{"a": "/work"}'},
                {"type": "function_call_output", "call_id": "c", "output": "t"},
            ],
            "tools": [{"type": "function", **TOOL}, {"type": "custom", "name": "y"}],
        },
    ),
    Endpoint(
        "POST",
        "/v1/messages",
        {
            "model": "m",
            "max_tokens": 10,
            "system": [{"type": "text", "text": "s"}],
            "messages": [
                {"role": "user", "content": "u"},
                {
                    "role": "assistant",
                    "content": [{"type": "tool_use", "id": "c", "name": "x", "input": {"a": 1}}],
                },
                {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": "t"}]},
            ],
            "tools": [{"name": "x", "input_schema": {"type": "object"}}],
        },
    ),
    Endpoint("POST", "/v1/messages/count_tokens", {"model": "m", "messages": []}),
    Endpoint("GET", "/v1/models"),
)


@dataclass(frozen=True)
class Sent:
    """The bytes of one connection, in frames of a size, and the harness that sends them."""

    content: bytes
    frame: int
    harness: str

    def __repr__(self) -> str:
        return f"{self.harness}, {len(self.content)} bytes in frames of {self.frame}: {self.content[:1500]!r}"


@dataclass
class Sink:
    """A sandbox whose port takes what is said to it."""

    said: list[bytes] = field(default_factory=list)
    closed: bool = False

    async def send_input(self, key: str, data: bytes, request: str) -> None:
        while data:
            _, kind, size = HEAD.unpack_from(data)
            self.said.append(data[HEAD.size + 4 : HEAD.size + size])
            self.closed |= kind == b"C"
            data = data[HEAD.size + size :]

    async def sessions(self) -> tuple[()]:
        return ()


def made(random: Random) -> Sent:
    endpoint = random.choice(ENDPOINTS)
    if random.random() < 0.5 and endpoint.body is not None:
        endpoint = Endpoint(endpoint.method, endpoint.path, enlarged(random, endpoint.body))
    content = request(random, [endpoint]).content
    content = content.replace(
        b"host: 127.0.0.1\r\n", b"host: x\r\nauthorization: Bearer %b\r\n" % KEY.encode(), 1
    )
    if random.random() < 0.2:
        head, _, body = content.partition(b"\r\n\r\n")
        head = b"\r\n".join(line for line in head.split(b"\r\n") if not line.startswith(b"content-length"))
        content = head + b"\r\ntransfer-encoding: chunked\r\n\r\n" + chunked(random, body)
    if random.random() < 0.2:
        content += random.choice((content, random.randbytes(1_000), b"\r\n" * 1_000))
    frame = random.choice((1, 100, 10_000, MOST_FRAME, MOST_FRAME)) if len(content) < 20_000 else MOST_FRAME
    return Sent(content[:MOST_REQUEST_BYTES], frame, random.choice(list(KNOWN)))


def enlarged(random: Random, body: Any) -> Any:
    """The body with one text, or one list, as large as requests may be."""
    text = json.dumps(body)
    size = 10 ** random.randint(3, 7)
    if random.random() < 0.7:
        piece = random.choice(TEXTS)
        wanted = random.choice(["u", "t", "s", "a", "d", "i"])
        return json.loads(text.replace(f'"{wanted}"', json.dumps(piece * (size // len(piece))), 1))
    name = random.choice([name for name, value in body.items() if isinstance(value, list) and value] or ["x"])
    return {**body, name: body.get(name, [{}]) * (size // 500 + 1)}


def chunked(random: Random, body: bytes) -> bytes:
    size = random.choice((1, 10, 1_000, 1 << 20)) if len(body) < 1 << 20 else 1 << 20
    pieces = (body[at : at + size] for at in range(0, len(body), size))
    return b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"


async def test_the_gateway_keeps_to_its_bounds(fuzzer: Fuzzer) -> None:
    gc.collect()
    gc.freeze()

    async def check(sent: Sent) -> None:
        excess, cost = "", None
        for _ in range(ATTEMPTS):
            measured = await play(sent)
            cost = measured if cost is None else cost.least(measured)
            if not (excess := beyond(sent, cost)):
                return
        raise AssertionError(excess)

    assert await fuzzer.run_async(made, check) > 0


def beyond(sent: Sent, cost: Cost) -> str:
    found = []
    if cost.memory > MEMORY + MEMORY_A_BYTE * len(sent.content):
        found.append(f"{cost.memory >> 20} MB")
    if cost.processor > MOST_PROCESSOR:
        found.append(f"{cost.processor:.1f} s of the processor")
    if cost.callback > LONGEST_CALLBACK:
        found.append(f"{cost.callback:.2f} s in {cost.what}")
    return ", ".join(found)


async def play(sent: Sent) -> Cost:
    sink = Sink()
    turns = Turns(cast(SandboxInstance, sink))
    normalization = Normalization(KNOWN[sent.harness].volatile, ("/work", "/home/agent"))
    stage = turns.stage(1)
    gateway = Gateway(stage, 4180, KEY, Naming(stage, normalization, aside_without_tools=False))
    log = [HEAD.pack(0, b"T", 4) + struct.pack(">I", 1), HEAD.pack(1, b"O", 0)]
    pieces = [sent.content[at : at + sent.frame] for at in range(0, len(sent.content), sent.frame)]
    log += [HEAD.pack(1, b"D", len(piece)) + piece for piece in pieces]
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    before = resident("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")
    processor = time.process_time()
    async with watched_callbacks() as callbacks:
        whole = b"".join(log)
        for at in range(0, len(whole), READ_BYTES):
            await gateway._port._read(whole[at : at + READ_BYTES])
        await asyncio.gather(*gateway._tasks.values())
    processor = time.process_time() - processor
    memory = resident("VmHWM") - before
    require_answer(sink)
    return Cost(memory, processor, callbacks.longest, callbacks.what)


def require_answer(sink: Sink) -> None:
    """One answer that h11 can read whole, or none: what came is no whole request."""
    if not (said := b"".join(sink.said)):
        return
    client = h11.Connection(h11.CLIENT)
    client.send(h11.Request(method="GET", target="/", headers=[("host", "x")]))
    client.send(h11.EndOfMessage())
    client.receive_data(said)
    statuses = []
    while (event := client.next_event()) not in (h11.NEED_DATA, h11.PAUSED):
        if isinstance(event, h11.Response | h11.InformationalResponse):
            statuses.append(event.status_code)
        if isinstance(event, h11.EndOfMessage):
            break
    assert sink.closed == any(status >= 200 for status in statuses)
    assert all(status in (100, 200, 400, 401, 403, 404, 413) for status in statuses), statuses
