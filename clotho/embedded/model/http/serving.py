"""Shared by the endpoints: reading and admitting a request, running it to its end, and streaming it."""

import asyncio
import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from typing import Any, Generic, TypeVar

from pydantic import ValidationError
from pydantic_core import to_json
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse

from clotho.embedded.model.engine import Engine, EngineStopped
from clotho.embedded.model.generation import Step
from clotho.embedded.model.http.refusals import (
    MOST_SHOWN,
    Refusal,
    context_overflow,
    engine_stopped,
    invalid,
    refused,
)
from clotho.embedded.model.http.requests import Body, SamplingFields, Streamed
from clotho.embedded.model.policy import Policy
from clotho.embedded.model.sampling import SamplingParameters
from clotho.listeners.bodies import Bodies, BodyLimits
from clotho.listeners.refused import Refused

LIMITS = BodyLimits(sent_bytes=16 * 2**20, unpacked_bytes=16 * 2**20, seconds=60)
CHARACTERS_SAVED = 4
"""Most characters that become one when a tokenizer normalizes text."""

Json = dict[str, Any]
Read = TypeVar("Read", bound=Body)
RequestT = TypeVar("RequestT", bound=Streamed)


class Serving:
    """One engine under one model name."""

    def __init__(self, engine: Engine, model_name: str) -> None:
        self.engine = engine
        self.model_name = model_name
        self._bodies = Bodies(LIMITS)
        # One thread: the tokenizer is not safe to share between several.
        self._tokenizer_thread = ThreadPoolExecutor(1, "tokenizer")

    @property
    def policy(self) -> Policy:
        return self.engine.policy

    async def read(self, request: Request, kind: type[Read]) -> Read:
        """The request's body. Raises Refusal."""
        try:
            async with self._bodies.body(request.headers, request.receive) as body:
                asked = kind.model_validate_json(self._bodies.unpacked(body, ""))
        except Refused as error:
            raise refused(error) from error
        except ClientDisconnect:
            raise Refusal(499, "The client closed the connection.") from None
        except ValidationError as error:
            raise invalid(error) from error
        if isinstance(asked, Streamed) and asked.model not in (None, self.model_name):
            message = f"The model `{str(asked.model)[:MOST_SHOWN]}` does not exist."
            raise Refusal(404, message, param="model", code="model_not_found")
        return asked

    async def tokenized(self, tokenize: Callable[[], list[int]]) -> list[int]:
        return await asyncio.get_running_loop().run_in_executor(self._tokenizer_thread, tokenize)

    def encoded(self, text: str) -> list[int]:
        """The tokens of `text`. Blocking, but for no longer than a prompt that fits. Raises Refusal."""
        # a text that can't fit is refused before it is tokenized, which takes time in proportion to its length
        self.check_length(len(text) // (CHARACTERS_SAVED * self.policy.tokenizer.longest))
        return self.policy.tokenizer.encode(text)

    def check_length(self, least: int) -> None:
        """Raise Refusal for a prompt of at least `least` tokens, if that is too long already."""
        limit = self.policy.model.architecture.max_position_embeddings
        if least >= limit:
            raise context_overflow(limit, f"at least {least}")

    def admit(
        self, prompt: list[int], fields: SamplingFields, max_tokens: int | None, alternatives: int
    ) -> SamplingParameters:
        """Cut `max_tokens`, by default all, to what the context leaves. Raises Refusal."""
        architecture = self.policy.model.architecture
        size, room = architecture.vocab_size, architecture.max_position_embeddings - len(prompt)
        if room < 1:
            raise context_overflow(architecture.max_position_embeddings, len(prompt))
        for param, ids in (("prompt", prompt), ("stop_token_ids", fields.stop_token_ids or [])):
            if outside := [token for token in ids if not 0 <= token < size]:
                message = f"Token id {outside[0]} is not in the vocabulary of {size} tokens."
                raise Refusal(400, message, param=param)
        return fields.parameters(min(max_tokens or room, room), alternatives)


class Answer(ABC, Generic[RequestT]):
    """The answer to one request in the shape of its endpoint, whole or in chunks."""

    def __init__(
        self, serving: Serving, asked: RequestT, prompt: list[int], parameters: SamplingParameters
    ) -> None:
        self.asked = asked
        self.prompt = prompt
        self.id = uuid.uuid4().hex
        self._serving = serving
        self._parameters = parameters
        self._created = int(time.time())

    @property
    def policy(self) -> Policy:
        return self._serving.policy

    @abstractmethod
    def identity(self) -> Json:
        """The fields that every body begins with."""

    @abstractmethod
    def choice(self, steps: Sequence[Step], all_steps: Sequence[Step]) -> Json:
        """The choice with `steps`, the last ones of `all_steps`, which are all that is sampled so far."""

    async def respond(self, request: Request) -> Response:
        if self.asked.stream:
            return _event_stream(self.chunks())
        steps = await _collect(request, self.generation())
        whole = self.body(self.choice(steps, steps), usage_of=len(steps))
        return Response(to_json(whole, inf_nan_mode="null"), media_type="application/json")

    def generation(self) -> AsyncGenerator[Step]:
        return self._serving.engine.generate(self.prompt, self._parameters)

    async def chunks(self) -> AsyncGenerator[Json]:
        """Start the generation and stream its chunks."""
        steps: list[Step] = []
        async with aclosing(self.generation()) as running:
            async for step in running:
                steps.append(step)
                yield self.body(self.choice([step], steps))
        if self.asked.wants_usage:
            yield self.body(usage_of=len(steps))

    def body(self, *choices: Json, usage_of: int | None = None) -> Json:
        """`usage_of`: the tokens that were sampled, where the body counts them."""
        body = {
            **self.identity(),
            "created": self._created,
            "model": self._serving.model_name,
            "seed": self._parameters.seed,
            "choices": choices,
            "usage": None,
        }
        if usage_of is not None:
            prompt = len(self.prompt)
            usage = {
                "prompt_tokens": prompt,
                "completion_tokens": usage_of,
                "total_tokens": prompt + usage_of,
            }
            body["usage"] = usage
        return body


async def _collect(request: Request, steps: AsyncGenerator[Step]) -> list[Step]:
    """All steps. Raises Refusal when the client leaves before the end, so that nothing is computed for nobody."""

    async def collect() -> list[Step]:
        return [step async for step in steps]

    async def disconnect() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass

    working, watching = asyncio.create_task(collect()), asyncio.create_task(disconnect())
    try:
        await asyncio.wait({working, watching}, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise Refusal(499, "The client closed the connection.")
        return working.result()
    finally:
        working.cancel()
        watching.cancel()


def _event_stream(chunks: AsyncGenerator[Json]) -> StreamingResponse:
    """Chunks as server-sent events, closed by [DONE], or by an error when the engine stops before the end."""

    async def events() -> AsyncIterator[bytes]:
        try:
            async with aclosing(chunks) as open_chunks:
                async for chunk in open_chunks:
                    yield _event(chunk)
        except EngineStopped:
            yield _event(engine_stopped().body)
            return
        yield b"data: [DONE]\n\n"

    return StreamingResponse(events(), media_type="text/event-stream")


def _event(content: Json) -> bytes:
    return b"data: " + to_json(content, inf_nan_mode="null") + b"\n\n"


def ending_of(steps: Sequence[Step], all_steps: Iterable[Step]) -> Json:
    """The fields in which every choice says whether and how the generation has ended."""
    ending = steps[-1].ending
    return {
        "index": 0,
        "finish_reason": ending.reason if ending else None,
        "stop_reason": ending.matched if ending else None,
        "weight_versions": _versions_of(all_steps) if ending else None,
    }


def _versions_of(steps: Iterable[Step]) -> list[Json]:
    """The weight versions that the tokens were sampled from: tokens [start, end) from `version`."""
    spans: list[Json] = []
    for position, step in enumerate(steps):
        if spans and spans[-1]["version"] == step.version:
            spans[-1]["end"] = position + 1
        else:
            spans.append({"version": step.version, "start": position, "end": position + 1})
    return spans


def text_of(steps: Sequence[Step]) -> str:
    return "".join(step.text for step in steps)


def ids_of(steps: Sequence[Step]) -> list[int]:
    return [step.sampled.token for step in steps]
