"""A harness whose process changes: what it has worked, and what it was told, counts on."""

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from temporalio.exceptions import ApplicationError
from temporalio.testing import ActivityEnvironment

from activities.agents import Agents
from clotho.errors import Unavailable
from clotho.identifiers.ids import job_key
from clotho.identifiers.keys import servers_prefix
from clotho.journal import Journal
from clotho.journal.folder import FilesystemStore
from clotho.models.messages import ChatMessage
from clotho.plugins.harness import program
from clotho.plugins.harness.harnesses import harness_of
from clotho.plugins.harness.program import HarnessRun
from clotho.plugins.harness.settings import HarnessSettings
from clotho.rollouts.agent_program import AnsweredTurn, ProgramEntry, ProgramServer
from clotho.rollouts.program_end import ProgramRequest
from clotho.sandbox.backend import SandboxInstance, SandboxSpec, SessionInfo
from clotho.sandbox.local.backend import LocalBackend
from clotho.sandbox.states import JobState
from tests.harness.stages import Turns
from tests.support import SHARED_LEASE, eventually

WAITS = "until [ -e go ]; do sleep 0.05; done"
STAYS = """
import json, os, time, urllib.request, urllib.error
url, key = os.environ["OPENAI_BASE_URL"] + "/chat/completions", os.environ["OPENAI_API_KEY"]
body = json.dumps({"model": "m", "messages": [{"role": "user", "content": "hello"}]}).encode()
try:
    urllib.request.urlopen(urllib.request.Request(url, body, {"Authorization": f"Bearer {key}"}))
except urllib.error.HTTPError:
    open("told", "w").close()
time.sleep(100_000)
"""
SECONDS = 3.0
LATE_SECONDS = 1.0
ROLLOUT = "r/g000000/r0"


@dataclass
class Told(Turns):
    """Every call meets a limit."""

    async def _answer(self, turn: int) -> AnsweredTurn:
        return AnsweredTurn(None, "max_turns")


@pytest.fixture
async def sandbox(folder: Path, request: pytest.FixtureRequest) -> AsyncIterator[SandboxInstance]:
    backend, lease = LocalBackend(folder / "sandboxes-takeovers"), f"test/{request.node.name}/lease/0"
    yield await backend.create(lease, SandboxSpec().model_copy(update=SHARED_LEASE))
    await backend.destroy(lease)


def server(turns: Turns, number: int, *command: str) -> HarnessRun:
    settings = HarnessSettings(command=command)
    prompt: Any = SimpleNamespace(messages=(ChatMessage(role="user", content="task"),))
    return HarnessRun(replace(turns.stage(number), prompt=prompt), settings, harness_of("command", settings))


@asynccontextmanager
async def serving(run: HarnessRun) -> AsyncIterator["asyncio.Task[ProgramEntry]"]:
    """A server that stops where the program hasn't ended before."""
    task = asyncio.create_task(run.to_its_end())
    try:
        yield task
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError, Unavailable):
            await task


async def begun(sandbox: SandboxInstance, job: str) -> None:
    async def has_begun() -> bool:
        return (await sandbox.wait(job, 0)).state is not JobState.ABSENT

    await eventually(has_begun, "the job's start")


async def test_its_work_counts_on(sandbox: SandboxInstance, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the program has ended before the second server knows when the first one began."""
    turns = Turns(sandbox)
    key = job_key(turns.rollout, "harness", 0)
    sessions = sandbox.sessions

    async def worked() -> bool:
        (port,) = await sessions()
        return time.time() - port.started > SECONDS

    async def late() -> Sequence[SessionInfo]:
        await asyncio.sleep(LATE_SECONDS)
        return await sessions()

    async with serving(server(turns, 1, "bash", "-c", WAITS)):
        await begun(sandbox, key)
        await eventually(worked, "its work for some seconds")
    await sandbox.write_file("go", b"")
    monkeypatch.setattr(sandbox, "sessions", late)
    async with serving(server(turns, 2, "bash", "-c", WAITS)) as second:
        entry = await second
    assert entry.end.exit_code == 0 and entry.end.seconds > SECONDS


async def test_a_server_whose_port_was_taken_over_ends(sandbox: SandboxInstance) -> None:
    """It would wait for ever: what it sends has no effect, and its harness gets no answer."""
    turns = Turns(sandbox)
    async with serving(server(turns, 1, "bash", "-c", WAITS)) as first:
        await begun(sandbox, job_key(turns.rollout, "harness", 0))
        async with serving(server(turns, 2, "bash", "-c", WAITS)) as second:
            with pytest.raises(Unavailable, match="taken"):
                await first
            await sandbox.write_file("go", b"")
            assert (await second).end.exit_code == 0


async def test_an_attempt_that_is_out_of_date_takes_nothing_over(tmp_path: Path) -> None:
    """Temporal gives tasks to a process that stands still: it begins them when others have gone on."""
    journal, environment, unused = Journal(FilesystemStore(tmp_path)), ActivityEnvironment(), cast(Any, None)
    this = f"{environment.info.workflow_run_id}/{environment.info.activity_id}"
    later = ProgramServer(queue="other", activity=this, attempt=7)
    await journal.append(servers_prefix(ROLLOUT), later)
    environment.info = replace(environment.info, attempt=2)
    agents = Agents(journal, unused, "own", unused)
    request = ProgramRequest(rollout=ROLLOUT, lease=0, asked=(), seconds_left=None)
    with pytest.raises(ApplicationError, match="a later attempt serves"):
        await environment.run(agents.run_program, request)
    assert await journal.latest_numbered(servers_prefix(ROLLOUT), ProgramServer) == (0, later)


@pytest.mark.slow  # for as long as a harness has after its last call
async def test_its_grace_goes_on(sandbox: SandboxInstance, monkeypatch: pytest.MonkeyPatch) -> None:
    """It ends where the grace that the first server began is over, however patient the second one is."""
    turns = Told(sandbox)
    key = job_key(turns.rollout, "harness", 0)
    monkeypatch.setattr(program, "MOST_GRACE_SECONDS", 100_000.0)
    async with serving(server(turns, 1, "python3", "-c", STAYS)):
        await begun(sandbox, job_key(key, "grace"))
    async with serving(server(turns, 2, "python3", "-c", STAYS)) as second:
        entry = await second
    assert (entry.end.limit, entry.end.exit_code) == ("max_turns", 137)
