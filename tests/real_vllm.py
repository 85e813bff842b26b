"""Both token-exact endpoints of a real vLLM with the embedded policy's weights: `make test-vllm`.

Not part of the suite: it needs vLLM (`VLLM`: its program), several GB of memory and minutes of CPU. With WRITE, a
file, what was measured is written there.
"""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from clotho.embedded.model.bundled import BUNDLED, TINY
from clotho.embedded.model.kv_cache import KeyValueCache
from clotho.embedded.model.policy import Policy
from clotho.embedded.model.qwen2 import Extension
from clotho.embedded.model.sampling import log_softmax
from clotho.errors import ModelUnavailable
from clotho.inference.base import ChatMessage, Inference, SampledTokens, SampledTurn, Sampling, TurnCall
from clotho.inference.rendering_thread import RenderingThread
from clotho.inference.token_exact import TokenExact
from clotho.inference.token_http import TokenHTTP
from clotho.inference.write_ahead import Pace
from clotho.journal import Journal
from clotho.processes.child import ChildProcess
from clotho.processes.ports import free_port
from clotho.rendering.resolve import open_renderer
from clotho.store.filesystem import FilesystemStore
from clotho.testing.scripted_model import serving
from tests.support import eventually
from tests.token_servers import Relay

START_SECONDS = 400.0
CONTEXT = 1024
TURNS = 12
TASKS = (
    "Create a file at ~/notes/report.txt containing exactly the text: winter lamp",
    "How many lines are in ~/river/log.md?",
    "Append the line 'noon' to the file /tmp/qz.csv",
)
ENDPOINTS = (Inference.VLLM_GENERATE, Inference.VLLM_COMPLETIONS)
VARIABLES = (
    "VLLM_CPU_KVCACHE_SPACE=1",
    "VLLM_NO_USAGE_STATS=1",
    "DO_NOT_TRACK=1",
    "HF_HUB_OFFLINE=1",
)


@dataclass
class Measured:
    turns: int
    tokens: int
    same_ids: int
    """Turns whose ids and logprobs are those of the same request in one piece."""
    worst_logprob: float
    """The largest difference from the embedded model's logprob of the same token, in nats."""
    resumed: int


@pytest.fixture(scope="module")
async def vllm(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[str]:
    program, port = Path(os.environ.get("VLLM", "vllm")), free_port()
    command = ["env", f"PATH={program.parent}:{os.environ['PATH']}", *VARIABLES, str(program), "serve"]
    command += [str(BUNDLED), "--host", "127.0.0.1", "--port", str(port), "--served-model-name", TINY]
    command += ["--dtype", "float32", "--max-model-len", str(CONTEXT), "--max-num-seqs", "16"]
    command += ["--max-num-batched-tokens", str(CONTEXT), "--enforce-eager", "--enable-scale-out"]
    server = ChildProcess(command, tmp_path_factory.mktemp("vllm") / "log")
    url = f"http://127.0.0.1:{port}"
    await server.start()
    try:
        async with httpx.AsyncClient(timeout=5) as client:

            async def healthy() -> bool:
                assert server.running, server.output[-3_000:]
                try:
                    return (await client.get(f"{url}/health")).is_success
                except httpx.TransportError:
                    return False

            await eventually(healthy, "vLLM's answer", START_SECONDS)
        yield url
    finally:
        await server.stop()


@pytest.mark.parametrize("inference", ENDPOINTS)
async def test_tokens_and_logprobs_are_those_of_the_server(
    vllm: str, tmp_path: Path, inference: Inference
) -> None:
    """Half of the turns are cut off once and go on from their tokens."""
    policy = Policy.load(BUNDLED)
    rendering = RenderingThread(lambda: open_renderer(str(BUNDLED), tool_call_parser="hermes"))
    calls = [turn_call(number) for number in range(TURNS)]
    relay = Relay(vllm, cut=lambda key, request: 6 if is_cut(key) else None)
    async with serving(relay) as url:
        connection = TokenHTTP(url)
        backend = TokenExact(
            connection, rendering, Journal(FilesystemStore(tmp_path)), inference, Pace(64, 60.0)
        )
        async with aclosing(connection):
            found = await backend.check(TINY)
            turns = await asyncio.gather(*(whole(backend, call) for call in calls))
    assert (found.backend, found.logprobs_mode, found.noise) == (inference, "raw", "sequence")
    assert found.context == CONTEXT
    exact = [turn.tokens for turn in turns if turn.tokens]
    uncut = [turn for turn in turns if turn.tokens and not turn.tokens.resumed_at]
    alike = [await same_in_one_piece(vllm, turn) for turn in uncut]
    measured = Measured(
        turns=len(exact),
        tokens=sum(len(tokens.ids) for tokens in exact),
        same_ids=sum(alike),
        worst_logprob=max(off_by(policy, tokens) for tokens in exact),
        resumed=sum(bool(tokens.resumed_at) for tokens in exact),
    )
    assert len(exact) == TURNS and all(alike)
    assert measured.resumed >= TURNS // 3
    assert measured.worst_logprob < 1e-3
    if "WRITE" in os.environ:
        write(Path(os.environ["WRITE"]), inference, measured)


def turn_call(number: int) -> TurnCall:
    task = ChatMessage(role="user", content=TASKS[number % len(TASKS)])
    return TurnCall(
        key=f"run/g{number:06}/r0/turn/0000",
        model=TINY,
        messages=(task,),
        sampling=Sampling(seed=1_000 + number, max_tokens=120),
    )


def is_cut(key: str) -> bool:
    """The first request of every second turn."""
    group, _, rest = key.removeprefix("run/g").partition("/")
    return rest == "r0/turn/0000" and int(group) % 2 == 0


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


def off_by(policy: Policy, tokens: SampledTokens) -> float:
    """The largest difference between a turn's logprobs and those that the embedded model computes for its ids."""
    cache = KeyValueCache(policy.model.architecture)
    unseen, worst = list(tokens.prompt_ids), 0.0
    for token, logprob in zip(tokens.ids, tokens.logprobs, strict=True):
        row = log_softmax(policy.model.extend([Extension(cache, unseen)]))[0]
        worst, unseen = max(worst, abs(float(row[token]) - logprob)), [token]
    return worst


TITLE = """\
# Fidelity

What `make test-vllm WRITE=1` measured: turns of the embedded policy's weights, sampled at temperature 1 by a real
vLLM 0.32 on a CPU through Clotho's token-exact backends. Every second turn's connection is cut after six events,
and the turn goes on from its journalled tokens.

Uncut turns are compared with the same request in one piece, sent to the server itself; all logprobs with those
that the embedded model computes for the same tokens.

| endpoint | turns | resumed | sampled tokens | same ids as in one piece | largest difference in logprob (nats) |
|---|---|---|---|---|---|
"""


def write(path: Path, inference: Inference, measured: Measured) -> None:
    rows = path.read_text().removeprefix(TITLE).splitlines() if path.exists() else []
    row = (
        f"| {inference} | {measured.turns} | {measured.resumed} | {measured.tokens} | "
        f"{measured.same_ids} of {measured.turns - measured.resumed} | {measured.worst_logprob:.1e} |"
    )
    kept = [other for other in rows if other and not other.startswith(f"| {inference} |")]
    path.write_text(TITLE + "".join(f"{each}\n" for each in sorted([*kept, row])))
