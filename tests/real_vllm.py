"""Both token-exact endpoints of a real vLLM with the embedded policy's weights: `make test-vllm`.

Not part of the suite: it needs vLLM (`VLLM`: its program), several GB of memory and minutes of CPU. With WRITE, a
file, what was measured is written there.
"""

import asyncio
import json
import os
import shutil
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import httpx
import pytest

from clotho.embedded.model.bundled import BUNDLED, TINY
from clotho.embedded.model.kv_cache import KeyValueCache
from clotho.embedded.model.policy import Policy
from clotho.embedded.model.qwen2 import Extension
from clotho.embedded.model.sampling import log_softmax
from clotho.errors import ContextOverflow, InvalidInput, ModelUnavailable
from clotho.journal import Journal
from clotho.journal.folder import FilesystemStore
from clotho.models.backend import (
    Inference,
    PriorTurn,
    SampledTokens,
    SampledTurn,
    ServerCapabilities,
    TurnCall,
)
from clotho.models.messages import ChatMessage
from clotho.models.model_http import ModelHTTP
from clotho.models.rendering.resolve import open_renderer
from clotho.models.sampling import Sampling
from clotho.models.token_exact import RenderingThread, TokenExact
from clotho.models.token_server import TokenRequest
from clotho.models.vllm import VLLMCompletions, VLLMGenerate
from clotho.models.write_ahead import FlushPolicy
from clotho.plugins.atropos.trainable import check_sampling
from clotho.rollouts.branches import branches_of
from clotho.rollouts.rollout import Prompt
from clotho.rollouts.transcript import Step, Transcript
from clotho.rollouts.turn import TurnEntry
from clotho.testing.scripted_model import serving
from clotho.tools.registry import Registry
from clotho.tools.resolution import resolve
from tests.fidelity_page import Table, write_row
from tests.token_servers import Relay
from tests.vllm_server import Server, vllm_server

CONTEXT = 1024
TURNS = 12
EOS = 2
TOOLS = resolve(Registry.discover(), ("terminal",)).schemas
EMPTY = json.dumps({"output": "", "exit_code": 0, "error": None})
MORE = ChatMessage(role="user", content="Go on.")
HOT = 1.5
CONVERSATIONS = 6
LONGEST = 6
"""Turns of a conversation."""
EDITED = 3
"""Before this turn every third conversation's history is compacted."""
TASKS = (
    "Create a file at ~/notes/report.txt containing exactly the text: winter lamp",
    "How many lines are in ~/river/log.md?",
    "Append the line 'noon' to the file /tmp/qz.csv",
)
ENDPOINTS = (Inference.VLLM_GENERATE, Inference.VLLM_COMPLETIONS)
DEFAULTS = {
    "eos_token_id": EOS,
    "temperature": 0.5,
    "top_k": 1,
    "top_p": 0.5,
    "min_p": 0.5,
    "repetition_penalty": 1.5,
    "presence_penalty": 1.5,
    "frequency_penalty": 1.5,
    "max_new_tokens": 4,
}
"""A model's generation_config, all of which must come to nothing."""


@dataclass(frozen=True)
class Measured:
    turns: int
    tokens: int
    same_ids: int
    """Turns whose ids are those of the same request in one piece."""
    worst_logprob: float
    """The largest difference from the embedded model's logprob of the same token, in nats."""
    resumed: int
    trainable: bool
    """Whether `serve` takes it."""

    def cells(self) -> tuple[str, ...]:
        same = f"{self.same_ids} of {self.turns - self.resumed}"
        taken = "takes" if self.trainable else "refuses"
        return (
            str(self.turns),
            str(self.resumed),
            str(self.tokens),
            same,
            f"{self.worst_logprob:.1e}",
            taken,
        )


@dataclass(frozen=True)
class Conversation:
    """Turns with the messages that each was sampled after; `edited`: from where the history is another one."""

    turns: tuple[SampledTurn, ...]
    messages: tuple[tuple[ChatMessage, ...], ...]
    edited: int | None

    @property
    def tokens(self) -> tuple[SampledTokens, ...]:
        return tuple(turn.tokens for turn in self.turns if turn.tokens is not None)


@pytest.fixture(scope="module", params=["raw", "processed"])
async def vllm(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Server]:
    model = shutil.copytree(BUNDLED, tmp_path_factory.mktemp("model") / TINY)
    (model / "generation_config.json").write_text(json.dumps(DEFAULTS))
    async with vllm_server(model, tmp_path_factory.mktemp("vllm"), request.param, CONTEXT) as server:
        yield server


@asynccontextmanager
async def opened(url: str, inference: Inference, store: Path) -> AsyncIterator[TokenExact]:
    rendering = RenderingThread(lambda: open_renderer(str(BUNDLED), tool_call_parser="hermes"))
    async with aclosing(ModelHTTP(url)) as connection:
        yield TokenExact(
            connection, rendering, Journal(FilesystemStore(store)), inference, FlushPolicy(64, 60.0)
        )


@pytest.mark.parametrize("temperature", [1.0, HOT])
@pytest.mark.parametrize("inference", ENDPOINTS)
async def test_tokens_and_logprobs_are_those_of_the_server(
    vllm: Server, tmp_path: Path, inference: Inference, temperature: float
) -> None:
    """Half of the turns are cut off once and go on from their tokens; a probe shows what the logprobs are of."""
    policy = Policy.load(BUNDLED)
    sampling = Sampling(temperature=temperature, max_tokens=120)
    calls = [turn_call(number, sampling) for number in range(TURNS)]
    relay = Relay(vllm.url, cut=lambda key, request: 6 if is_cut(key) else None)
    async with serving(relay) as url, opened(url, inference, tmp_path) as backend:
        found = await backend.check(TINY)
        turns = await asyncio.gather(*(whole(backend, call) for call in calls))
    assert (found.backend, found.logprobs_mode, found.rng_scope) == (inference, vllm.mode, "sequence")
    assert (found.context, found.weight_version) == (CONTEXT, None)
    exact = [turn.tokens for turn in turns if turn.tokens]
    assert {tokens.logprobs_mode for tokens in exact} == {vllm.mode}
    for turn, tokens in zip(turns, exact, strict=True):
        assert (tokens.ids[-1] == EOS) is (turn.finish_reason == "stop"), turn
        assert len(tokens.ids) == 120 or turn.finish_reason == "stop"
        assert "<|im_end|>" not in (turn.message.content or "")
    uncut = [turn for turn in turns if turn.tokens and not turn.tokens.resumed_at]
    alike = [await same_in_one_piece(vllm.url, turn) for turn in uncut]
    scale = temperature if vllm.mode == "processed" else 1.0
    measured = Measured(
        turns=len(exact),
        tokens=sum(len(tokens.ids) for tokens in exact),
        same_ids=sum(alike),
        worst_logprob=max(off_by(policy, tokens, scale) for tokens in exact),
        resumed=sum(bool(tokens.resumed_at) for tokens in exact),
        trainable=is_taken(sampling, found),
    )
    assert len(exact) == TURNS and all(alike)
    assert measured.resumed >= TURNS // 3
    assert measured.worst_logprob < 1e-3
    assert measured.trainable is (temperature == 1.0 or vllm.mode == "processed")
    if "WRITE" in os.environ:
        cells = (inference, vllm.mode, f"{temperature:g}", *measured.cells())
        write_row(Path(os.environ["WRITE"]), Table.TURNS, 3, cells)


@pytest.mark.parametrize("inference", ENDPOINTS)
async def test_whole_conversations_extend_what_was_sampled(
    vllm: Server, tmp_path: Path, inference: Inference
) -> None:
    """Calls, their results and further questions; every second turn cut off, some histories compacted."""
    policy = Policy.load(BUNDLED)
    relay = Relay(vllm.url, cut=lambda key, request: 6 if is_cut_within(key) else None)
    async with serving(relay) as url, opened(url, inference, tmp_path) as backend:
        await backend.check(TINY)
        played = await asyncio.gather(*(play(backend, number) for number in range(CONVERSATIONS)))
    turns = [turn for conversation in played for turn in conversation.turns]
    exact = [tokens for conversation in played for tokens in conversation.tokens]
    assert len(exact) == len(turns) >= 3 * CONVERSATIONS
    branches = 0
    for number, conversation in enumerate(played):
        for at, (before, after) in enumerate(pairwise(conversation.tokens), 1):
            sampled = before.prompt_ids + before.ids
            assert (after.prompt_ids[: len(sampled)] == sampled) is (at != conversation.edited), (number, at)
        found = branches_of(f"run/g{number:06}/r0", transcript_of(conversation))
        assert len(found) == 1 + (conversation.edited is not None)
        assert sum(map(sum, (branch.mask for branch in found))) == sum(
            len(each.ids) for each in conversation.tokens
        )
        branches += len(found)
    uncut = [turn for turn in turns if turn.tokens and not turn.tokens.resumed_at]
    alike = [await same_in_one_piece(vllm.url, turn) for turn in uncut]
    first = [(c.messages[0], c.tokens[0]) for c in played]
    assert all([await rendered(vllm.url, messages) == tokens.prompt_ids for messages, tokens in first])
    measured = Measured(
        turns=len(turns),
        tokens=sum(len(tokens.ids) for tokens in exact),
        same_ids=sum(alike),
        worst_logprob=max(off_by(policy, tokens, 1.0) for tokens in exact),
        resumed=sum(bool(tokens.resumed_at) for tokens in exact),
        trainable=True,
    )
    calls = sum(len(turn.message.tool_calls) for turn in turns)
    assert all(alike) and calls >= CONVERSATIONS and measured.resumed >= CONVERSATIONS
    assert measured.worst_logprob < 1e-3
    if "WRITE" in os.environ:
        cells = (inference, vllm.mode, CONVERSATIONS, measured.turns, calls, branches, measured.resumed)
        rest = (measured.tokens, f"{sum(alike)} of {len(alike)}", f"{measured.worst_logprob:.1e}")
        write_row(Path(os.environ["WRITE"]), Table.CONVERSATIONS, 2, (*map(str, cells), *map(str, rest)))


async def test_the_models_own_defaults_are_there_to_be_overridden(vllm: Server) -> None:
    """Else nothing were proved by their having no effect."""
    prompt = {"model": TINY, "prompt": list(range(300, 320)), "return_token_ids": True}
    async with httpx.AsyncClient(base_url=vllm.url, timeout=60) as client:
        answers = [
            (await client.post("/v1/completions", json=prompt | {"seed": seed})).json()["choices"][0]
            for seed in range(8)
        ]
    assert len({tuple(answer["token_ids"]) for answer in answers}) == 1
    assert len(answers[0]["token_ids"]) <= DEFAULTS["max_new_tokens"]


@pytest.mark.parametrize("inference", ENDPOINTS)
async def test_a_stop_string_ends_a_turn_also_in_two_parts(
    vllm: Server, tmp_path: Path, inference: Inference
) -> None:
    """Found by vLLM where one request samples it whole, and by nobody but us where two do."""
    async with opened(vllm.url, inference, tmp_path) as backend:
        turn = await backend.sample_turn(turn_call(1, Sampling(temperature=0.0, max_tokens=120)))
    assert turn.tokens is not None and len(turn.tokens.ids) > 8
    renderer = open_renderer(str(BUNDLED), tool_call_parser="hermes")
    first, second = (renderer.decode([turn.tokens.ids[at]]) for at in (5, 6))
    stop = first + second
    text = renderer.decode(turn.tokens.ids)
    stopping = Sampling(temperature=0.0, max_tokens=120, stop=(stop,))
    relay = Relay(vllm.url, cut=lambda key, request: 6 if is_cut(key) else None)
    async with serving(relay) as url, opened(url, inference, tmp_path) as backend:
        found_by_vllm, in_two_parts = [await whole(backend, turn_call(n, stopping)) for n in (7, 4)]
    for stopped in (found_by_vllm, in_two_parts):
        assert stopped.tokens is not None
        assert (stopped.finish_reason, stopped.stop_reason) == ("stop", stop)
        assert renderer.decode(stopped.tokens.ids) == text[: text.index(stop) + len(stop)]
    assert in_two_parts.tokens is not None and in_two_parts.tokens.resumed_at


@pytest.mark.parametrize("server", [VLLMGenerate, VLLMCompletions])
async def test_a_prompt_beyond_the_context_is_an_outcome(
    vllm: Server, server: type[VLLMGenerate] | type[VLLMCompletions]
) -> None:
    sampling = Sampling(seed=1, max_tokens=16)
    request = TokenRequest(key="k", model=TINY, prompt_ids=(300,) * (CONTEXT + 8), sampling=sampling)
    async with aclosing(ModelHTTP(vllm.url)) as connection:
        with pytest.raises(ContextOverflow):
            async for _ in server(connection).stream(request):
                pass


async def test_weights_have_the_servers_version_where_it_has_one(vllm: Server, tmp_path: Path) -> None:
    """/v1/completions says none: then the trainer's step as known."""
    named = {}
    async with httpx.AsyncClient(base_url=vllm.url, timeout=60) as client:
        (await client.post("/update_weight_version", json={"new_version": "7"})).raise_for_status()
        for inference in ENDPOINTS:
            async with opened(vllm.url, inference, tmp_path / inference) as backend:
                call = turn_call(0, Sampling(max_tokens=20)).model_copy(update={"trainer_step": 6})
                tokens = (await backend.sample_turn(call)).tokens
            assert tokens is not None
            named[inference] = [
                (span.version, span.start, span.end - len(tokens.ids)) for span in tokens.versions
            ]
        (await client.post("/update_weight_version", json={"new_version": "default"})).raise_for_status()
    assert named == {Inference.VLLM_GENERATE: [("7", 0, 0)], Inference.VLLM_COMPLETIONS: [("step:6", 0, 0)]}


def turn_call(number: int, sampling: Sampling) -> TurnCall:
    task = ChatMessage(role="user", content=TASKS[number % len(TASKS)])
    return TurnCall(
        key=f"run/g{number:06}/r0/turn/0000",
        model=TINY,
        messages=(task,),
        sampling=sampling.model_copy(update={"seed": 1_000 + number}),
    )


def is_cut(key: str) -> bool:
    """The first request of every second turn."""
    group, _, rest = key.removeprefix("run/g").partition("/")
    return rest == "r0/turn/0000" and int(group) % 2 == 0


def is_cut_within(key: str) -> bool:
    """The first request of every second turn of a conversation."""
    turn = key.rpartition("/turn/")[2]
    return turn.isdecimal() and int(turn) % 2 == 1


async def play(backend: TokenExact, number: int) -> Conversation:
    """A conversation in which every command comes back empty, and every answer is asked on."""
    messages: tuple[ChatMessage, ...] = (ChatMessage(role="user", content=TASKS[number % len(TASKS)]),)
    prior: PriorTurn | None = None
    turns: list[SampledTurn] = []
    asked: list[tuple[ChatMessage, ...]] = []
    edited = None
    for turn in range(LONGEST):
        if turn == EDITED and number % 3 == 0:
            messages, edited = (messages[0], ChatMessage(role="assistant", content="I tried."), MORE), turn
        key, sampling = (
            f"run/g{number:06}/r0/turn/{turn:04}",
            Sampling(max_tokens=60, seed=50 * number + turn),
        )
        call = TurnCall(key=key, model=TINY, messages=messages, tools=TOOLS, sampling=sampling, prior=prior)
        try:
            sampled = await whole(backend, call)
        except ContextOverflow:
            break
        assert sampled.tokens is not None
        turns.append(sampled)
        asked.append(messages)
        prior = PriorTurn(messages=(*messages, sampled.message), tokens=sampled.tokens)
        results = tuple(
            ChatMessage(role="tool", tool_call_id=call.id, name=call.function.name, content=EMPTY)
            for call in sampled.message.tool_calls
        )
        messages = (*prior.messages, *(results or (MORE,)))
    return Conversation(
        tuple(turns), tuple(asked), edited if edited is not None and edited < len(turns) else None
    )


def transcript_of(conversation: Conversation) -> Transcript:
    prompt = Prompt(item={}, messages=conversation.messages[0], seed=1)
    steps = (Step(turn=TurnEntry(sampled=turn), calls=()) for turn in conversation.turns)
    return Transcript(prompt=prompt, steps=tuple(steps))


async def rendered(url: str, messages: tuple[ChatMessage, ...]) -> tuple[int, ...]:
    """The prompt as vLLM's own template rendering has it."""
    body = {"model": TINY, "messages": [message.wire() for message in messages], "tools": list(TOOLS)}
    async with httpx.AsyncClient(base_url=url, timeout=60) as client:
        answer = (await client.post("/v1/chat/completions/render", json=body)).raise_for_status().json()
    return tuple(answer["token_ids"])


async def whole(backend: TokenExact, call: TurnCall) -> SampledTurn:
    try:
        return await backend.sample_turn(call)
    except ModelUnavailable:
        return await backend.sample_turn(call)


async def same_in_one_piece(url: str, turn: SampledTurn) -> bool:
    assert turn.tokens is not None
    sampling = turn.sampling.model_dump(mode="json", exclude={"extra_body"}) | {"logprobs": 0}
    body = {"token_ids": turn.tokens.prompt_ids, "sampling_params": sampling}
    async with httpx.AsyncClient(base_url=url, timeout=60) as client:
        choice = (await client.post("/inference/v1/generate", json=body)).json()["choices"][0]
    return tuple(choice["token_ids"]) == turn.tokens.ids


def is_taken(sampling: Sampling, found: ServerCapabilities) -> bool:
    try:
        check_sampling(sampling, found)
    except InvalidInput:
        return False
    return True


def off_by(policy: Policy, tokens: SampledTokens, temperature: float) -> float:
    """The largest difference between a turn's logprobs and those that the embedded model computes for its ids."""
    cache = KeyValueCache(policy.model.architecture)
    unseen, worst = list(tokens.prompt_ids), 0.0
    for token, logprob in zip(tokens.ids, tokens.logprobs, strict=True):
        row = log_softmax(policy.model.extend([Extension(cache, unseen)]) / temperature)[0]
        worst, unseen = max(worst, abs(float(row[token]) - logprob)), [token]
    return worst
