"""Sandboxes that are looked at before a rollout: one for each process, and a lost one is an outage."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from clotho.errors import SandboxLost, SandboxUnavailable
from clotho.journal import Journal
from clotho.journal.folder import FilesystemStore
from clotho.models.endpoint import Endpoint
from clotho.runs.manifest import open_run
from clotho.runs.request import run_manifest
from clotho.sandbox.backend import JobState
from clotho.sandbox.item import ItemSandbox
from tests.sandbox.test_fenced_leases import ROLLOUT, RUN, host
from tests.support import ONE_FILE

FILES = {"/work/given": b"given"}


@pytest.fixture
async def known(tmp_path: Path) -> AsyncIterator[Journal]:
    journal = Journal(FilesystemStore(tmp_path))
    await open_run(
        journal, run_manifest(ONE_FILE, RUN, "scripted"), Endpoint(base_url="http://127.0.0.1:1/v1")
    )
    yield journal


async def test_a_process_that_is_done_leaves_another_its_probe(known: Journal, folder: Path) -> None:
    async with host(known, folder) as one, host(known, folder) as two:
        async with two.probed(RUN, ROLLOUT, ItemSandbox(), FILES) as still_there:
            async with one.probed(RUN, ROLLOUT, ItemSandbox(), FILES) as done:
                assert (await done.read_file("/work/given", 100)).content == b"given"
            assert (await still_there.wait("never-begun", 0)).state is JobState.ABSENT
            assert len(await two.backend.leases()) == 1
        assert await two.backend.leases() == ()


async def test_a_probe_that_is_lost_is_an_outage(known: Journal, folder: Path) -> None:
    """Other attempts go on in new ones."""
    async with host(known, folder) as sandboxes:
        with pytest.raises(SandboxUnavailable):
            async with sandboxes.probed(RUN, ROLLOUT, ItemSandbox(), FILES) as probe:
                [held] = await sandboxes.backend.leases()
                await sandboxes.backend.destroy(held.lease)
                await probe.wait("never-begun", 0)
        async with sandboxes.probed(RUN, ROLLOUT, ItemSandbox(), FILES) as probe:
            assert (await probe.wait("never-begun", 0)).state is JobState.ABSENT


async def test_a_probe_that_used_up_a_resource_is_not_made_again(known: Journal, folder: Path) -> None:
    async with host(known, folder) as sandboxes:
        with pytest.raises(SandboxLost):
            async with sandboxes.probed(RUN, ROLLOUT, ItemSandbox(), FILES):
                raise SandboxLost("gone", "memory")
