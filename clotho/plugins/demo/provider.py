"""The model's provider as faults see it: it counts what it answered, to whom, and can keep a call waiting.

It stands in front of the embedded model. Commands in its answers are marked, and the marks taken out of what it
is asked, so that the model says what it would say without them.
"""

import asyncio
import json
import threading
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import httpx
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from clotho.frozen_model import FrozenModel
from clotho.plugins.demo.execution_markers import marked, unmarked
from clotho.testing.scripted_model import Dropped

HELD_POLL_SECONDS = 0.02
READ_SECONDS = 1.0
"""Time after an asker's death within which its last request is read, on a busy machine."""
UPSTREAM_SECONDS = 600.0


@dataclass
class Call:
    """One request for a turn."""

    key: str
    asked: float
    """When the request was read."""
    journalled: bool
    """The turn's entry was in the store when it was asked for."""
    answered: bool = False
    heard: bool = False
    """Whether the asker was still there for the answer."""


@dataclass
class Provider:
    """`slow`: turns (by key) whose commands take so many seconds. `hold`: the turn to keep waiting.

    With `halves`, the turn is held when half of its answer is sent. `touched` is a file that every command touches
    beside.
    """

    upstream: str
    journalled: Callable[[str], bool]
    slow: Mapping[str, int] = field(default_factory=dict)
    hold: str | None = None
    halves: bool = False
    touched: str = ""
    marks_commands: bool = True
    latency: float = 0.0
    """Seconds that an answer takes longer than upstream."""
    calls: list[Call] = field(default_factory=list)
    held: threading.Event = field(default_factory=threading.Event)
    _broken: bool = False
    _client: httpx.AsyncClient | None = None

    def __post_init__(self) -> None:
        self.app = Starlette(
            routes=[
                Route("/v1/chat/completions", self._complete, methods=["POST"]),
                Route("/v1/models", self._models),
            ]
        )

    def release(self) -> None:
        """Go on with the call that is held."""
        self.hold = None

    def break_off(self) -> None:
        """End the answer of which half is sent, as the model server's end does."""
        self._broken = True

    async def _complete(self, request: Request) -> Response:
        key = request.headers.get("idempotency-key", "")
        call = Call(key, time.monotonic(), await asyncio.to_thread(self.journalled, key))
        self.calls.append(call)
        body = unmarked_request(await request.body())
        if not self.halves:
            await self._held(key)
        await asyncio.sleep(self.latency)
        # The asking process may be dead by now. Providers answer, and charge, all the same.
        try:
            answer = await self._upstream().post("/v1/chat/completions", content=body)
        except httpx.TransportError:
            return Dropped()
        call.answered = answer.is_success
        call.heard = not await request.is_disconnected()
        content = answer.content
        if answer.is_success and self.marks_commands:
            content = marked_answer(content, key, self.slow.get(key, 0), self.touched)
        if answer.is_success and self.hold == key:
            length = {"content-length": str(len(content))}
            return StreamingResponse(self._halved(call, content), 200, length, "application/json")
        return Response(content, answer.status_code, media_type="application/json")

    async def _halved(self, call: Call, content: bytes) -> AsyncIterator[bytes]:
        half = len(content) // 2
        yield content[:half]
        await self._held(call.key)
        if self._broken:
            call.answered = False
        else:
            yield content[half:]

    async def _held(self, key: str) -> None:
        while self.hold == key and not self._broken:
            self.held.set()
            await asyncio.sleep(HELD_POLL_SECONDS)

    async def _models(self, _: Request) -> Response:
        try:
            answer = await self._upstream().get("/v1/models")
        except httpx.TransportError:
            return Dropped()
        return Response(answer.content, answer.status_code, media_type="application/json")

    def _upstream(self) -> httpx.AsyncClient:
        """Made where it is used: the server runs in a thread with a loop of its own."""
        if self._client is None:
            self._client = httpx.AsyncClient(
                base_url=self.upstream,
                timeout=UPSTREAM_SECONDS,
                # the default of 100 would hold calls up that the run makes at once
                limits=httpx.Limits(max_connections=None),
            )
        return self._client


def unmarked_request(body: bytes) -> bytes:
    asked: dict[str, Any] = json.loads(body)
    for message in asked["messages"]:
        for call in message.get("tool_calls") or ():
            call["function"]["arguments"] = unmarked(call["function"]["arguments"])
    return json.dumps(asked).encode()


def marked_answer(body: bytes, key: str, seconds: int, touched: str = "") -> bytes:
    answer: dict[str, Any] = json.loads(body)
    turn = key.rpartition("/")[2]
    for choice in answer["choices"]:
        for index, call in enumerate(choice["message"].get("tool_calls") or ()):
            function = call["function"]
            function["arguments"] = marked(function["arguments"], f"{turn}-{index:02}", seconds, touched)
    return json.dumps(answer).encode()


class Bill(FrozenModel):
    """Calls to the model that were answered more than once."""

    repaid: int = 0
    died: int = 0
    """Answered again since the process that had asked was killed before it could write the answer."""
    hung_up: int = 0
    """Answered again after the rollout was ended on purpose, which hangs up on a call in flight."""


def duplicate_calls(
    calls: Sequence[Call], deaths: Sequence[float], *, ended_on_purpose: bool = False
) -> Bill:
    """Every answer to a key beyond its first is repaid, unless the one before could not have been written.

    That is so where its asker was killed since, or, if work was `ended_on_purpose`, had hung up; and where its
    entry wasn't there when the next was asked for.
    """
    by_key: Mapping[str, list[Call]] = {call.key: [] for call in calls}
    for call in calls:
        if call.answered:
            by_key[call.key].append(call)
    repaid = died = hung_up = 0
    for answered in by_key.values():
        for before, again in pairwise(answered):
            if again.journalled:
                repaid += 1
            elif any(before.asked - READ_SECONDS < death < again.asked for death in deaths):
                died += 1
            elif ended_on_purpose and not before.heard:
                hung_up += 1
            else:
                repaid += 1
    return Bill(repaid=repaid, died=died, hung_up=hung_up)
