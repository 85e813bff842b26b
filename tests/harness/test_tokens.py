"""Tokens of programs with a loop of their own: those that the model sampled, in the conversations that it saw."""

import asyncio
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest
from starlette.requests import Request
from starlette.responses import Response

from clotho.identifiers.keys import agent_key, lease_key
from clotho.journal import Journal
from clotho.models.backend import Inference
from clotho.models.rendering.rendering import Rendering
from clotho.rollouts.agent_program import ProgramEntry
from clotho.rollouts.branches import Branch, branches_of
from clotho.rollouts.transcript import Transcript, read_transcript
from clotho.run_settings import RunSettings
from clotho.runs.rollouts import read_end
from clotho.testing.scripted_model import serving
from tests.cluster import Cluster
from tests.harness.test_harness import AGENT, COMMAND, ENVIRONMENT
from tests.support import PATIENCE_SECONDS
from tests.token_scripts import FORGETFUL, TokenScript, calling
from tests.unit.rendering.families import make_model

SAID = (
    calling("echo a >> /work/log"),
    calling("wc -l < /work/log"),
    calling("echo -n 0.75 > /work/score"),
    "Done.",
)


class HeldTokens(TokenScript):
    """Says nothing more after two turns, until it may."""

    def __init__(self, model: Path, said: Sequence[Sequence[str]]) -> None:
        super().__init__(model, said)
        self.holding, self.may = threading.Event(), threading.Event()  # it is served in a thread
        self.turns: list[str] = []

    async def _generate(self, request: Request) -> Response:
        key = request.headers["idempotency-key"]
        if "/turn/" in key:
            self.turns.append(key)
        if key.endswith("/turn/0002"):
            self.holding.set()
            await asyncio.to_thread(self.may.wait)
        return await super()._generate(request)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(tmp_path_factory.mktemp("model") / "forgetful", FORGETFUL)


async def told(journal: Journal, rollout: str) -> tuple[Transcript, tuple[Branch, ...]]:
    end = await read_end(journal, rollout)
    assert end is not None and end.summary.score == 0.75
    transcript = await read_transcript(journal, rollout, end.summary.turns)
    return transcript, branches_of(rollout, transcript)


def assert_as_sampled(transcript: Transcript, branches: Sequence[Branch]) -> None:
    trained = [
        pair
        for branch in branches
        for *pair, mask in zip(branch.ids, branch.logprobs, branch.mask, strict=True)
        if mask
    ]
    sampled = [
        [*pair]
        for step in transcript.steps
        if step.turn.sampled is not None and (tokens := step.turn.sampled.tokens) is not None
        for pair in zip(tokens.ids, tokens.logprobs, strict=True)
    ]
    assert trained == sampled and sampled


@pytest.mark.parametrize("lost", [False, pytest.param(True, marks=pytest.mark.slow)])
async def test_its_turns_extend_one_conversation(cluster: Cluster, model: Path, lost: bool) -> None:
    """After a loss a new start goes on with the tokens that the model sampled for the first one."""
    name = "harness-lost-tokens" if lost else "harness-tokens"
    rollout, server = f"{name}/g000000/r0", HeldTokens(model, (SAID,))
    async with serving(server) as url:
        handle = await cluster.start(
            name,
            url,
            environment=ENVIRONMENT,
            agent=AGENT,
            settings=RunSettings(plugins={"harness": {"command": COMMAND}}),
            model="forgetful",
            inference=Inference.TOKENS,
            rendering=Rendering(tokenizer=str(model), tool_call_parser="hermes"),
        )
        assert await asyncio.to_thread(server.holding.wait, PATIENCE_SECONDS)
        if lost:
            await cluster.sandboxes().destroy(lease_key(rollout, 0))
        server.may.set()
        await handle.result()
    journal = cluster.open_journal()
    transcript, branches = await told(journal, rollout)
    assert_as_sampled(transcript, branches)
    assert len(server.turns) == len(set(server.turns))
    (branch,) = branches
    assert branch.turns == tuple(range(len(SAID)))
    if lost:
        entry = await journal.read_required(agent_key(rollout, 1), ProgramEntry)
        assert (entry.matched, entry.calls) == (3, len(SAID))
