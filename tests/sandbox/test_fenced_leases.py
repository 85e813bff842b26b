"""Leases that were followed by others are fenced, however alive their sandboxes are."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from temporalio.testing import ActivityEnvironment

from activities.claims import WorkClaims
from activities.restore import Restorer
from activities.sandbox import Sandboxes
from activities.tools import Tools
from clotho.config import variable
from clotho.environment.instances import EnvironmentProcesses
from clotho.environment.tools import EnvironmentTools
from clotho.errors import InvalidInput, SandboxFenced, SandboxLost
from clotho.identifiers.keys import lease_key, prompt_key, tools_key, turn_key
from clotho.journal import Journal
from clotho.journal.folder import FilesystemStore
from clotho.models.backend import SampledTurn, Usage
from clotho.models.endpoint import Endpoint
from clotho.models.messages import ChatMessage, FunctionCall, ToolCall
from clotho.models.sampling import Sampling
from clotho.monitoring.metrics import Metrics
from clotho.processes.liveness import Presence, ServedNamespace
from clotho.rollouts.call import CallRequest
from clotho.rollouts.group import ToolManifest
from clotho.rollouts.lease import LeaseRequest
from clotho.rollouts.rollout import Prompt
from clotho.rollouts.turn import TurnEntry
from clotho.runs.manifest import open_run, read_manifest
from clotho.runs.request import run_manifest
from clotho.sandbox.backend import Labels, SandboxSpec
from clotho.sandbox.local.backend import LocalBackend
from tests.sandbox.conftest import needs_root
from tests.support import ONE_FILE

RUN = "fenced"
ROLLOUT = f"{RUN}/g000000/r0"
CALL = ToolCall(id="1", function=FunctionCall(name="terminal", arguments="{}"))
LABELS = Labels(store="store", cluster="cluster", namespace="default", rollout="")


def presence(journal: Journal) -> Presence:
    async def look_up() -> str:
        return "id"

    return Presence(journal, ServedNamespace("default", look_up))


@asynccontextmanager
async def host(journal: Journal, root: Path) -> AsyncIterator[Sandboxes]:
    backend = LocalBackend(root)
    async with EnvironmentProcesses() as environments:
        restorer = Restorer(journal, backend, EnvironmentTools(variable, environments), LABELS)
        try:
            yield Sandboxes(
                journal,
                backend,
                restorer,
                LABELS,
                f"clotho-sandbox-{root.name}",
                root.name,
                Metrics(),
                presence(journal),
            )
        finally:
            for held in await backend.leases():
                await backend.destroy(held.lease)


@pytest.fixture
async def journal(tmp_path: Path) -> Journal:
    journal = Journal(FilesystemStore(tmp_path))
    manifest = run_manifest(ONE_FILE, RUN, "scripted").model_copy(
        update={"sandbox": SandboxSpec(disk_mb=200, memory_mb=512)}
    )
    await open_run(journal, manifest, Endpoint(base_url="http://127.0.0.1:1/v1"))
    await journal.write(prompt_key(ROLLOUT), Prompt(item={}, messages=(), seed=0))
    await journal.write(tools_key(f"{RUN}/g000000"), ToolManifest(toolsets=(), tools=(), unavailable={}))
    return journal


def request(number: int) -> LeaseRequest:
    return LeaseRequest(rollout=ROLLOUT, number=number)


@needs_root
async def test_a_lease_that_another_followed_is_fenced_while_its_sandbox_lives(
    journal: Journal, folder: Path
) -> None:
    """This happens on a host that was cut off, and to a workflow without its history, which begins with lease 0."""
    async with (
        host(journal, folder / "host-one") as one,
        host(journal, folder / "host-two") as two,
    ):
        first = await one.lease(request(0))
        entry = await one.entry(ROLLOUT, 0)
        await one.attach(ROLLOUT, first.number)
        second = await two.lease(request(1))
        assert await two.lease(request(0)) == first, "a lease is made once"
        await one.backend.attach(lease_key(ROLLOUT, 0), entry.incarnation)
        for sandboxes in (one, two):
            with pytest.raises(SandboxFenced):
                await sandboxes.attach(ROLLOUT, first.number)
            with pytest.raises(SandboxFenced):
                await sandboxes.require_current_lease(ROLLOUT, 0)
        await two.attach(ROLLOUT, second.number)


@needs_root
async def test_a_sandbox_of_another_host_is_not_taken_for_lost(journal: Journal, folder: Path) -> None:
    async with (
        host(journal, folder / "host-here") as here,
        host(journal, folder / "host-there") as there,
    ):
        lease = await there.lease(request(0))
        with pytest.raises(InvalidInput, match=r"clotho-sandbox-host-there.*clotho-sandbox-host-here"):
            await here.attach(ROLLOUT, lease.number)
        await there.backend.destroy(lease_key(ROLLOUT, 0))
        with pytest.raises(SandboxLost) as lost:
            await there.attach(ROLLOUT, lease.number)
        assert not isinstance(lost.value, SandboxFenced)


class RemoteStore(FilesystemStore):
    """A store that counts how often a reader waits for it: once for what is asked for together."""

    waits = 0
    _reading = 0

    async def read_many(self, keys: Sequence[str]) -> list[bytes | None]:
        self.waits += self._reading == 0
        self._reading += 1
        try:
            return await super().read_many(keys)
        finally:
            self._reading -= 1


@needs_root
async def test_a_lease_is_looked_up_beside_what_a_call_reads_anyway(
    journal: Journal, tmp_path: Path, folder: Path
) -> None:
    """The turn is another process's entry, so it has to be read."""
    sampled = SampledTurn(
        message=ChatMessage(role="assistant", tool_calls=(CALL,)),
        finish_reason="tool_calls",
        usage=Usage(),
        model="scripted",
        sampling=Sampling(),
        started=0.0,
        seconds=0.0,
    )
    await journal.write(turn_key(ROLLOUT, 0), TurnEntry(sampled=sampled))
    store = RemoteStore(tmp_path)
    here = Journal(store)
    await read_manifest(here, RUN)
    await here.read_required(tools_key(f"{RUN}/g000000"), ToolManifest)
    async with host(here, folder / "host-remote") as sandboxes, EnvironmentProcesses() as environments:
        lease = await sandboxes.lease(request(0))
        tools = Tools(
            here,
            sandboxes,
            EnvironmentTools(variable, environments),
            Metrics(),
            WorkClaims(here, presence(here), "host-remote-0"),
        )
        call = CallRequest(rollout=ROLLOUT, turn=0, index=0, lease=lease.number, tool_state={})
        store.waits = 0
        result = await ActivityEnvironment().run(tools.call_tool, call)
    assert result.failed, "no tool was offered"
    assert store.waits == 1, "for the call's own entry and for all that it is made from"
