"""Token-exact mode: prompts extend what was sampled, and every sampled id and logprob is kept as returned."""

import asyncio
from bisect import bisect_left
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from typing import TypeVar

from clotho.errors import ContextOverflow, InvalidInput, ModelUnavailable
from clotho.identifiers.ids import derived_seed
from clotho.journal import Journal
from clotho.models.backend import Inference, SampledTurn, ServerCapabilities, TurnCall, Usage, at_step
from clotho.models.messages import ChatMessage
from clotho.models.model_http import ModelHTTP
from clotho.models.partial_turn import PartialTurn
from clotho.models.probes import ProbedServer, probe
from clotho.models.rendering.renderer import Renderer
from clotho.models.sampling import Sampling
from clotho.models.token_server import TokenRequest
from clotho.models.write_ahead import FlushPolicy, WriteAhead

PROBE = (ChatMessage(role="user", content="Tell me something that nobody knows yet."),)

Result = TypeVar("Result")


class RenderingThread:
    """A renderer with a thread of its own: rendering takes CPU time, and tokenizers aren't thread-safe.

    It is opened at the first use; if `open_it` raises, it is called again.
    """

    def __init__(self, open_it: Callable[[], Renderer]) -> None:
        self._open = open_it
        self._renderer: Renderer | None = None
        self._thread = ThreadPoolExecutor(1, "renderer")

    async def run(self, work: Callable[[Renderer], Result]) -> Result:
        return await asyncio.get_running_loop().run_in_executor(self._thread, lambda: work(self._opened()))

    async def renderer(self) -> Renderer:
        """The renderer itself, for calls that take no time."""
        return await self.run(lambda renderer: renderer)

    def _opened(self) -> Renderer:
        if self._renderer is None:
            self._renderer = self._open()
        return self._renderer


class TokenExact:
    """Samples turns of one model through a token-exact endpoint, written ahead in `journal`.

    The server is probed before the first turn, and again by `check`.
    """

    def __init__(
        self,
        http: ModelHTTP,
        rendering: RenderingThread,
        journal: Journal,
        inference: Inference,
        flush_policy: FlushPolicy,
    ) -> None:
        self._http = http
        self._rendering = rendering
        self._journal = journal
        self._inference = inference
        self._flush_policy = flush_policy
        self._probed: ProbedServer | None = None
        self._probing = asyncio.Lock()
        self._version: str | None = None

    @property
    def capabilities(self) -> ServerCapabilities | None:
        return self._probed.capabilities if self._probed is not None else None

    async def check(self, model: str) -> ServerCapabilities:
        self._probed = None
        return (await self._server(model)).capabilities

    async def sample_turn(self, call: TurnCall) -> SampledTurn:
        """Sample one assistant message, continuing the tokens of an interrupted attempt.

        Raises ModelUnavailable, ModelRejected, ContextOverflow, InexactTokens, and InvalidInput for settings
        that no turn can be sampled with.
        """
        probed = await self._server(call.model)
        renderer = await self._rendering.renderer()
        ahead = WriteAhead(self._journal, call.key, self._flush_policy)
        turn = await self._begun(call, renderer, ahead)
        sampling = _explicit(call.sampling, renderer, len(turn.prompt_ids), probed.capabilities.context)
        turn.budget = sampling.max_tokens
        if turn.ids and turn.finish_reason is None:
            await self._rendering.run(lambda renderer: _end_if_ended(turn, sampling, renderer))
        if turn.finish_reason is None:
            await self._stream(call, probed, turn, sampling, ahead)
            if turn.resumed_at:
                await self._rendering.run(lambda renderer: _end_at_stop(turn, sampling, renderer))
        answer = await self._rendering.run(
            lambda renderer: renderer.parse(
                turn.ids, call.tools, prompt_ids=turn.prompt_ids, turn_key=call.key
            )
        )
        return SampledTurn(
            message=answer.message,
            defects=answer.defects,
            finish_reason=turn.finish_reason,
            stop_reason=turn.stop_reason,
            usage=Usage(
                prompt_tokens=len(turn.prompt_ids),
                completion_tokens=len(turn.ids),
                cached_prompt_tokens=turn.cached_prompt_tokens,
            ),
            model=call.model,
            sampling=sampling,
            started=turn.started,
            seconds=turn.seconds,
            system_fingerprint=turn.system_fingerprint and self._http.redact(turn.system_fingerprint),
            tokens=turn.tokens(probed.capabilities.backend, probed.capabilities.logprobs_mode),
        )

    async def _server(self, model: str) -> ProbedServer:
        async with self._probing:
            if self._probed is None:
                renderer = await self._rendering.renderer()
                prompt_ids = await self._rendering.run(lambda renderer: renderer.render(PROBE))
                self._probed = await probe(
                    self._http, self._inference, model, prompt_ids, renderer.description
                )
                self._version = self._probed.capabilities.weight_version
            return self._probed

    async def _begun(self, call: TurnCall, renderer: Renderer, ahead: WriteAhead) -> PartialTurn:
        if entries := await ahead.read():
            # never rendered anew: the tokens were sampled after the prompt that is in the write-ahead
            return PartialTurn.resumed(entries, renderer.vocabulary_size)
        prompt_ids = await self._rendering.run(
            lambda renderer: renderer.next_prompt(call.messages, call.tools, call.prior)
        )
        return PartialTurn(prompt_ids, renderer.vocabulary_size)

    async def _stream(
        self, call: TurnCall, probed: ProbedServer, turn: PartialTurn, sampling: Sampling, ahead: WriteAhead
    ) -> None:
        # the version as known before the request: what comes later may be of newer weights
        turn.begin_request(self._version, call.trainer_step)
        # prompt caches survive an update of the weights: the salt keeps this prompt from what older ones computed
        newest = self._version
        if newest is None and call.trainer_step is not None:
            newest = at_step(call.trainer_step)
        request = _request(call, turn, sampling, probed.capabilities, newest)
        try:
            async with aclosing(probed.server.stream(request)) as stream:
                async for chunk in stream:
                    turn.add(chunk)
                    ahead.offer(turn)
            if turn.finish_reason is None:
                raise ModelUnavailable("the model server's stream ended before the turn did")
        except ModelUnavailable:
            # the next attempt goes on from here; other errors end the turn, and nobody needs its tokens
            await ahead.flush(turn)
            raise
        # no write is left that would end after the turn's own entry
        await ahead.settle()
        self._version = turn.versions[-1].version if turn.versions else self._version


def _explicit(sampling: Sampling, renderer: Renderer, prompt: int, context: int | None) -> Sampling:
    """`sampling` with the stop tokens of the renderer, and max_tokens bounded by the room after the prompt."""
    room = None if context is None else context - prompt
    if room is not None and room < 1:
        raise ContextOverflow(f"a prompt of {prompt} tokens leaves no room in a context of {context}")
    budget = min((bound for bound in (sampling.max_tokens, room) if bound is not None), default=None)
    if budget is None:
        raise InvalidInput("the model server doesn't say how long its context is: give --max-tokens")
    stops = dict.fromkeys((*sampling.stop_token_ids, *renderer.stop_token_ids))
    return sampling.model_copy(update={"max_tokens": budget, "stop_token_ids": tuple(stops)})


def _request(
    call: TurnCall, turn: PartialTurn, sampling: Sampling, served: ServerCapabilities, version: str | None
) -> TokenRequest:
    """The request for the rest of the turn, with another seed if the same would repeat its random numbers."""
    offset = len(turn.ids)
    assert sampling.max_tokens is not None
    seed = sampling.seed
    if offset and served.rng_scope == "sequence" and seed is not None:
        seed = derived_seed(seed, offset)
    return TokenRequest(
        # the rest is another request: under the first one's key a server may answer with the beginning again
        key=f"{call.key}/{offset}" if offset else call.key,
        model=call.model,
        prompt_ids=(*turn.prompt_ids, *turn.ids),
        sampling=sampling.model_copy(update={"max_tokens": sampling.max_tokens - offset, "seed": seed}),
        cache_salt=version,
    )


def _end_if_ended(turn: PartialTurn, sampling: Sampling, renderer: Renderer) -> None:
    """End a turn whose write-ahead is complete: another request would sample beyond it."""
    assert sampling.max_tokens is not None
    _end_at_stop(turn, sampling, renderer)
    if turn.finish_reason is None and turn.ids[-1] in sampling.stop_token_ids:
        turn.finish_reason, turn.stop_reason = "stop", turn.ids[-1]
    elif turn.finish_reason is None and len(turn.ids) >= sampling.max_tokens:
        turn.finish_reason = "length"


def _end_at_stop(turn: PartialTurn, sampling: Sampling, renderer: Renderer) -> None:
    """End the turn with the token that completes a stop string, if there is one.

    A server doesn't find a stop string whose beginning an earlier request sampled.
    """

    def met(length: int) -> str | None:
        text = renderer.decode(turn.ids[:length])
        return next((stop for stop in sampling.stop if stop in text), None)

    if sampling.stop and met(len(turn.ids)) is not None:
        lengths = range(1, len(turn.ids) + 1)
        # once met, a stop string is met at every greater length: decoding all of them would take quadratic time
        length = 1 + bisect_left(lengths, True, key=lambda length: met(length) is not None)
        turn.end_at(length, str(met(length)))
