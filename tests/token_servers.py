"""Token-exact model servers: real ones behind a relay that paces, cuts and falsifies, and small real samplers."""

import asyncio
import json
import math
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

import httpx
import numpy as np
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from clotho.embedded.model.engine import Engine
from clotho.embedded.model.http.requests import SamplingFields
from clotho.identifiers.ids import derived_seed
from tests.support import PATIENCE_SECONDS

Json = dict[str, Any]


class Cut(Exception):
    """The connection breaks here."""


@dataclass
class Relay:
    """Passes requests on, and events back. `cut`: after how many of a request's events it breaks off."""

    upstream: str
    seconds: float = 0.0
    """Between two events of a turn; probes aren't slowed down."""
    cut: Callable[[str, int], int | None] = lambda key, request: None
    twist: Callable[[Json], Json] = lambda event: event
    most: int | None = None
    """Events of a turn's request after which it waits while there is such a number."""
    asked: list[tuple[str, Json]] = field(default_factory=list)
    """Idempotency-Key and body of each turn's request."""
    told: list[tuple[str, Json]] = field(default_factory=list)
    """Idempotency-Key and event of each event of a turn, as the server sent it."""

    def __post_init__(self) -> None:
        self.app = Starlette(routes=[Route("/{path:path}", self._pass_on, methods=["GET", "POST"])])

    async def _pass_on(self, request: Request) -> Response:
        body, key = await request.body(), request.headers.get("idempotency-key", "")
        client = httpx.AsyncClient(
            base_url=self.upstream,
            timeout=PATIENCE_SECONDS,
            verify=False,
            headers={"idempotency-key": key, "content-type": "application/json"},
        )
        if request.method == "GET":
            async with client:
                answer = await client.get(request.url.path)
            return Response(answer.content, answer.status_code)
        turn = "/turn/" in key
        if turn:
            self.asked.append((key, json.loads(body)))
        cut = self.cut(key, len(self.asked)) if turn else None
        answer = await client.send(client.build_request("POST", request.url.path, content=body), stream=True)
        if answer.status_code != 200:
            async with aclosing(client):
                return Response(await answer.aread(), answer.status_code)
        events = self._events(client, answer, key if turn else None, cut)
        return StreamingResponse(events, media_type="text/event-stream")

    async def _events(
        self, client: httpx.AsyncClient, answer: httpx.Response, turn: str | None, cut: int | None
    ) -> AsyncIterator[str]:
        passed = 0
        async with aclosing(client):
            async for line in answer.aiter_lines():
                if passed == cut:
                    raise Cut
                if not line.startswith("data:"):
                    continue
                passed += 1
                await asyncio.sleep(self.seconds if turn else 0)
                while turn and self.most is not None and passed > self.most:
                    await asyncio.sleep(0.02)
                content = line[5:].strip()
                if content == "[DONE]":
                    yield "data: [DONE]\n\n"
                    continue
                event = json.loads(content)
                if turn is not None:
                    self.told.append((turn, event))
                yield sse(self.twist(event))


def sse(event: Json) -> str:
    return f"data: {json.dumps(event)}\n\n"


class SGLangShape:
    """The embedded engine in SGLang's clothes; `increments`: what was said before isn't repeated."""

    def __init__(self, engine: Engine, increments: bool = False) -> None:
        self._engine = engine
        self._increments = increments
        self.app = Starlette(routes=[Route("/generate", self._generate, methods=["POST"])])
        self.asked: list[Json] = []

    async def _generate(self, request: Request) -> Response:
        body = json.loads(await request.body())
        self.asked.append(body)
        limit = self._engine.policy.model.architecture.max_position_embeddings
        if len(body["input_ids"]) >= limit:
            message = (
                f"The input ({len(body['input_ids'])} tokens) is longer than the model's context length "
                f"({limit} tokens)."
            )
            return JSONResponse({"error": {"message": message}}, 400)
        return StreamingResponse(self._events(body), media_type="text/event-stream")

    async def _events(self, body: Json) -> AsyncIterator[str]:
        asked = dict(body["sampling_params"])
        limit = asked.pop("max_new_tokens")
        asked["seed"] = asked.pop("sampling_seed")
        parameters = SamplingFields.model_validate(asked).parameters(limit, 0)
        rows: list[Any] = []
        async for step in self._engine.generate(body["input_ids"], parameters):
            rows.append([step.sampled.logprob, step.sampled.token, None])
            shown = rows[-1:] if self._increments else rows
            ending = step.ending
            finish: Json | None = None
            if ending is not None:
                finish = {"type": ending.reason, "matched": ending.matched}
            yield sse(
                {
                    "text": "",
                    "output_ids": [row[1] for row in shown],
                    "meta_info": {
                        "id": "1",
                        "finish_reason": finish,
                        "prompt_tokens": len(body["input_ids"]),
                        "weight_version": self._engine.policy.version,
                        "completion_tokens": len(rows),
                        "cached_tokens": 3,
                        "output_token_logprobs": shown,
                    },
                }
            )
        yield "data: [DONE]\n\n"


EOS = 2
"""The end token of the embedded policy's tokenizer."""
WORDS = tuple(range(300, 332))


class SequenceSampler:
    """A Markov chain behind vLLM's /inference/v1/generate whose noise is a request's own sequence of numbers.

    Turns end with probability 1/`length` at every token, and a token follows itself `sticky` times as likely as
    any other follows it. `cut` breaks requests off as in Relay.
    """

    def __init__(
        self,
        length: float = 20.0,
        processed: bool = False,
        sticky: float = 6.0,
        cut: Callable[[str], int | None] = lambda key: None,
    ) -> None:
        self._length = length
        self._processed = processed
        self._sticky = sticky
        self.cut = cut
        self.app = Starlette(routes=[Route("/inference/v1/generate", self._generate, methods=["POST"])])

    async def _generate(self, request: Request) -> Response:
        body = json.loads(await request.body())
        if body["sampling_params"]["temperature"] > 2:
            return JSONResponse({"error": {"message": "temperature must be in [0, 2]"}}, 400)
        cut = self.cut(request.headers.get("idempotency-key", ""))
        return StreamingResponse(self._events(body, cut), media_type="text/event-stream")

    async def _events(self, body: Json, cut: int | None) -> AsyncIterator[str]:
        asked = body["sampling_params"]
        number = 0
        for number, (token, logprob, reason) in enumerate(self.turn(body["token_ids"][-1], asked), 1):
            if number - 1 == cut:
                raise Cut
            content = [{"token_id": token, "logprob": logprob}]
            choice = {"token_ids": [token], "logprobs": {"content": content}, "finish_reason": reason}
            yield sse({"choices": [choice], "usage": {"completion_tokens": number}})
        yield "data: [DONE]\n\n"

    def turn(self, last: int, asked: Json) -> Iterator[tuple[int, float, str | None]]:
        """Tokens with their logprobs, and why the last one is that."""
        noise = np.random.Generator(np.random.PCG64(asked["seed"]))
        for number in range(1, asked["max_tokens"] + 1):
            last, logprob = self._sample(last, asked, noise.random())
            ended = last == EOS and not asked.get("ignore_eos")
            yield last, logprob, "stop" if ended else "length" if number == asked["max_tokens"] else None
            if ended:
                return

    def _sample(self, last: int, asked: Json, drawn: float) -> tuple[int, float]:
        raw = self._logprobs(last)
        scaled = raw / asked["temperature"]
        if asked["top_k"] == 1:
            scaled = np.where(scaled == scaled.max(), scaled, -np.inf)
        chances = np.exp(scaled - scaled.max())
        chances /= chances.sum()
        at = min(int(chances.cumsum().searchsorted(drawn, side="right")), len(WORDS))
        reported = math.log(chances[at]) if self._processed else float(raw[at])
        return (*WORDS, EOS)[at], reported

    def _logprobs(self, last: int) -> np.ndarray[Any, np.dtype[np.float64]]:
        weights = np.array([self._sticky if word == last else 1.0 for word in WORDS])
        ending = 1 / self._length
        logprobs: np.ndarray[Any, np.dtype[np.float64]] = np.log(
            np.append(weights / weights.sum() * (1 - ending), ending)
        )
        return logprobs


def chance(*parts: str | int) -> float:
    """A number in [0, 1) that depends on nothing but `parts`."""
    return derived_seed(*parts) / (1 << 63)
