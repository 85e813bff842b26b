"""What the endpoints share: admitting a request, running it to its end, and streaming it."""

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from dataclasses import dataclass
from typing import Protocol, TypeVar

from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from clotho.embedded.model.engine import Engine, EngineStopped
from clotho.embedded.model.generation import Step
from clotho.embedded.model.http.refusals import (
    Refusal,
    context_overflow,
    engine_stopped,
    outside_vocabulary,
    unknown_model,
)
from clotho.embedded.model.http.requests import SamplingFields
from clotho.embedded.model.http.responses import Usage, WeightVersion
from clotho.embedded.model.policy import Policy
from clotho.embedded.model.sampling import SamplingParameters

T = TypeVar("T")
CHARACTERS_SAVED = 4
"""At most, for each that is left, when a tokenizer normalizes text."""


@dataclass(frozen=True)
class Admitted:
    """A request that will be served: what to continue, and how."""

    prompt: list[int]
    parameters: SamplingParameters
    created: int

    def usage(self, completion_tokens: int) -> Usage:
        return Usage(
            prompt_tokens=len(self.prompt),
            completion_tokens=completion_tokens,
            total_tokens=len(self.prompt) + completion_tokens,
        )


class Answer(Protocol):
    """What a request comes to, in the shape of its endpoint."""

    def whole(self, steps: Sequence[Step]) -> BaseModel:
        """From all steps of the generation."""

    def chunks(self) -> AsyncGenerator[BaseModel]:
        """As the generation goes on, which this starts."""


class Serving:
    """One engine under one model name."""

    def __init__(self, engine: Engine, model_name: str) -> None:
        self.engine = engine
        self.model_name = model_name
        # One thread: the tokenizer is not safe to share between several.
        self._tokenizer_thread = ThreadPoolExecutor(1, "tokenizer")

    @property
    def policy(self) -> Policy:
        return self.engine.policy

    async def tokenized(self, tokenize: Callable[[], list[int]]) -> list[int]:
        return await asyncio.get_running_loop().run_in_executor(self._tokenizer_thread, tokenize)

    def encoded(self, text: str) -> list[int]:
        """The tokens of `text`. Blocking, but for no longer than a prompt that fits. Raises Refusal."""
        self.check_length(len(text) // (CHARACTERS_SAVED * self.policy.tokenizer.longest))
        return self.policy.tokenizer.encode(text)

    def check_length(self, least: int) -> None:
        """Raises Refusal for a prompt of `least` tokens or more, if that is too long already."""
        limit = self.policy.model.architecture.max_position_embeddings
        if least >= limit:
            raise context_overflow(limit, f"at least {least}")

    def check_model(self, name: str | None) -> None:
        if name not in (None, self.model_name):
            raise unknown_model(str(name))

    def admit(
        self, prompt: list[int], fields: SamplingFields, max_tokens: int | None, alternatives: int
    ) -> Admitted:
        """Cut `max_tokens`, by default all, to what the context leaves. Raises Refusal."""
        architecture = self.policy.model.architecture
        room = architecture.max_position_embeddings - len(prompt)
        if room < 1:
            raise context_overflow(architecture.max_position_embeddings, len(prompt))
        for param, ids in (("prompt", prompt), ("stop_token_ids", fields.stop_token_ids or [])):
            for token in ids:
                if not 0 <= token < architecture.vocab_size:
                    raise outside_vocabulary(token, architecture.vocab_size, param)
        parameters = fields.parameters(min(max_tokens or room, room), alternatives)
        return Admitted(prompt, parameters, int(time.time()))

    def steps(self, admitted: Admitted) -> AsyncGenerator[Step]:
        return self.engine.generate(admitted.prompt, admitted.parameters)

    async def respond(
        self, request: Request, admitted: Admitted, answer: Answer, *, stream: bool
    ) -> Response:
        if stream:
            return _event_stream(answer.chunks())
        steps = await _collected(request, self.steps(admitted))
        return Response(answer.whole(steps).model_dump_json(), media_type="application/json")


async def _collected(request: Request, steps: AsyncGenerator[Step]) -> list[Step]:
    """All steps. Raises Refusal when the client leaves before the end, so that nothing is computed for nobody."""

    async def collect() -> list[Step]:
        return [step async for step in steps]

    return await _while_connected(request, collect())


async def _while_connected(request: Request, work: Coroutine[None, None, T]) -> T:
    working = asyncio.ensure_future(work)
    watching = asyncio.ensure_future(_disconnect(request))
    try:
        await asyncio.wait({working, watching}, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise Refusal(499, "The client closed the connection.")
        return working.result()
    finally:
        working.cancel()
        watching.cancel()


async def _disconnect(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _event_stream(chunks: AsyncGenerator[BaseModel]) -> StreamingResponse:
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


def _event(content: BaseModel) -> bytes:
    return b"data: " + content.model_dump_json().encode() + b"\n\n"


def versions_of(steps: Iterable[Step]) -> list[WeightVersion]:
    """Which weights each of the tokens was sampled from."""
    spans: list[WeightVersion] = []
    for position, step in enumerate(steps):
        if spans and spans[-1].version == step.version:
            spans[-1].end = position + 1
        else:
            spans.append(WeightVersion(version=step.version, start=position, end=position + 1))
    return spans


def text_of(steps: Sequence[Step]) -> str:
    return "".join(step.text for step in steps)


def ids_of(steps: Sequence[Step]) -> list[int]:
    return [step.sampled.token for step in steps]
