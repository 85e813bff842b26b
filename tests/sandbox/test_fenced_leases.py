"""Leases that were followed by others are fenced, however alive their sandboxes are."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from activities.restore import Restorer
from activities.sandbox import Sandboxes
from clotho.entries.group import ToolManifest
from clotho.entries.rollout import Prompt
from clotho.entries.run import Endpoint
from clotho.errors import InvalidInput, SandboxFenced, SandboxLost
from clotho.identifiers import lease_key, prompt_key, tools_key
from clotho.journal import Journal
from clotho.records.lease import LeaseRequest
from clotho.runs.manifest import open_run
from clotho.runs.order import run_manifest
from clotho.sandbox.base import Labels, SandboxSpec
from clotho.sandbox.local import LocalBackend
from clotho.store.filesystem import FilesystemStore
from clotho.toolsets.dispatch import Dispatcher
from clotho.toolsets.registry import Registry
from tests.sandbox.conftest import needs_root
from tests.support import ONE_FILE

RUN = "fenced"
ROLLOUT = f"{RUN}/g000000/r0"
LABELS = Labels(store="store", cluster="cluster", namespace="default", rollout="")


@asynccontextmanager
async def host(journal: Journal, root: Path) -> AsyncIterator[Sandboxes]:
    backend = LocalBackend(root)
    restorer = Restorer(journal, backend, Dispatcher(Registry.discover()), LABELS)
    try:
        yield Sandboxes(journal, backend, restorer, f"clotho-sandbox-{root.name}")
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
    return LeaseRequest(run=RUN, rollout=ROLLOUT, number=number)


@needs_root
async def test_a_lease_that_another_followed_is_fenced_while_its_sandbox_lives(
    journal: Journal, folder: Path
) -> None:
    """As on a host that was cut off, and for a workflow that has lost its history and begins with lease 0."""
    async with (
        host(journal, folder / "host-one") as one,
        host(journal, folder / "host-two") as two,
    ):
        first = await one.lease(request(0))
        entry = await one.entry(ROLLOUT, 0)
        await one.attach(ROLLOUT, first)
        second = await two.lease(request(1))
        assert await two.lease(request(0)) == first, "a lease is made once"
        await one.backend.attach(lease_key(ROLLOUT, 0), entry.incarnation)
        for sandboxes in (one, two):
            with pytest.raises(SandboxFenced):
                await sandboxes.attach(ROLLOUT, first)
            with pytest.raises(SandboxFenced):
                await sandboxes.held(ROLLOUT, 0)
        await two.attach(ROLLOUT, second)


@needs_root
async def test_a_sandbox_of_another_host_is_not_taken_for_lost(journal: Journal, folder: Path) -> None:
    async with (
        host(journal, folder / "host-here") as here,
        host(journal, folder / "host-there") as there,
    ):
        lease = await there.lease(request(0))
        with pytest.raises(InvalidInput, match=r"clotho-sandbox-host-there.*clotho-sandbox-host-here"):
            await here.attach(ROLLOUT, lease)
        await there.backend.destroy(lease_key(ROLLOUT, 0))
        with pytest.raises(SandboxLost) as lost:
            await there.attach(ROLLOUT, lease)
        assert not isinstance(lost.value, SandboxFenced)
