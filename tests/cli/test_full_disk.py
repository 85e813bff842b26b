"""A store whose disk is full: the run waits, says so, and goes on without paying for anything twice."""

import asyncio
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from clotho.cli.waiting import stall_reason
from clotho.runs.groups import scored_groups
from clotho.testing.script import Conversation, Script
from clotho.testing.scripted_model import ScriptedModel, serving
from tests.cli.command import clotho
from tests.cli.held import held, held_in, let_go, let_go_until_the_end
from tests.cluster import Cluster
from tests.sandbox.conftest import needs_root
from tests.support import eventually, start
from tests.workflows.scripts import say

pytestmark = needs_root  # to mount small disks


@pytest.fixture
def small_disk(private_cluster: Cluster) -> Iterator[Path]:
    """The cluster's store on 4 MB."""
    store = private_cluster.store
    store.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(store)], check=True)
    yield store
    subprocess.run(["umount", "-l", str(store)], check=True)


async def test_services_are_not_started_on_a_disk_that_is_nearly_full(folder: Path) -> None:
    """Temporal would end without a word, or workers would be started again and again."""
    disk = folder / "small"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(disk)], check=True)
    try:
        refused = await clotho("dev", "--store", str(disk / "state" / "store"))
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)
    assert refused.status == 1
    assert "is on a disk with 8 MiB left, and services need 64 MiB" in refused.complaint


@pytest.mark.slow
async def test_a_full_disk_holds_a_run_up_and_loses_nothing(
    private_cluster: Cluster, small_disk: Path
) -> None:
    variants = tuple((held(f"echo -n {score} > /work/score"), say("Done.")) for score in (1.0, 0.5))
    cluster, model = private_cluster, ScriptedModel(Script(conversations=(Conversation(variants=variants),)))
    async with serving(model) as url:
        await cluster.start_worker()
        handle = await start(cluster, "full", url, groups=2, group_size=2)

        async def under_way() -> bool:
            return len(held_in(cluster)) == 4

        await eventually(under_way, "every rollout in its call, after a paid turn")
        ballast = small_disk / "ballast"
        await asyncio.to_thread(fill, ballast)
        let_go(cluster)

        async def said() -> bool:
            return "No space left on device" in (await stall_reason(cluster.client, "full") or "")

        await eventually(said, "what holds the run up")
        ballast.unlink()
        progress = await let_go_until_the_end(cluster, handle)
    assert (progress.scored, progress.failed, progress.reward_sum) == (2, 0, 3.0)
    assert model.calls.paid_twice == {}
    assert len(await scored_groups(cluster.open_journal(), "full")) == 2


def fill(path: Path) -> None:
    with path.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError:
            return
