"""One adapter a run: who has it, and how it changes hands."""

import asyncio
import os
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from clotho.errors import InvalidInput
from clotho.identifiers.keys import run_lock_prefix
from clotho.journal import Journal
from clotho.journal.folder import FilesystemStore
from clotho.plugins.atropos.run_lock import ProcessIdentity, RunLockEntry, held
from clotho.processes.liveness import LIVENESS_SECONDS, Liveness
from tests.support import PATIENCE_SECONDS

RUN = "run"


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    return Journal(FilesystemStore(tmp_path))


@pytest.fixture
def process() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "infinity"]) as process:
        yield process
        process.kill()


def elsewhere(holder: ProcessIdentity) -> ProcessIdentity:
    """As seen from a host that can't look at the process."""
    return holder.model_copy(update={"host": "elsewhere", "numbering": "another boot"})


async def let_hold(journal: Journal, holder: ProcessIdentity) -> None:
    await journal.write(f"{run_lock_prefix(RUN)}000000", RunLockEntry(holder=holder))


@asynccontextmanager
async def showing_signs(journal: Journal) -> AsyncIterator[None]:
    """Until the end, after which none comes late."""
    presence, over = Liveness(journal, f"adapter/{RUN}"), False

    async def show() -> None:
        while not over:
            await asyncio.sleep(0.2)
            await presence.beat()

    await presence.beat()
    signs = asyncio.create_task(show())
    try:
        yield
    finally:
        over = True
        await signs


def test_a_process_is_told_from_others_that_have_its_number(process: subprocess.Popen[bytes]) -> None:
    holder = ProcessIdentity.of(process.pid, since=0.0)
    assert holder.lives() is True
    assert holder.model_copy(update={"began": holder.began - 1}).lives() is False
    assert elsewhere(holder).lives() is None
    process.kill()
    assert process.wait() != 0
    assert holder.lives() is False


def test_a_process_that_nobody_reaps_is_dead(process: subprocess.Popen[bytes]) -> None:
    holder = ProcessIdentity.of(process.pid, since=0.0)
    process.kill()
    while Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z":
        pass
    assert holder.lives() is False


async def test_the_second_is_told_who_has_the_run_and_since_when(journal: Journal) -> None:
    async with held(journal, RUN):
        with pytest.raises(InvalidInput, match=r"served by process \d+ on \S+ since \d{4}-\d\d-\d\d .* UTC"):
            async with held(journal, RUN):
                pass
        async with held(journal, "another-run"):
            pass
    async with held(journal, RUN):
        pass


async def test_a_dead_holder_is_followed_at_once(journal: Journal, process: subprocess.Popen[bytes]) -> None:
    await let_hold(journal, ProcessIdentity.of(process.pid, since=0.0))
    with pytest.raises(InvalidInput, match=f"process {process.pid} on"):
        async with held(journal, RUN):
            pass
    process.kill()
    process.wait()
    await Liveness(journal, f"adapter/{RUN}").beat()
    async with asyncio.timeout(LIVENESS_SECONDS / 2), held(journal, RUN):
        pass


async def test_signs_tell_whether_a_holder_elsewhere_lives(
    journal: Journal, process: subprocess.Popen[bytes]
) -> None:
    await let_hold(journal, elsewhere(ProcessIdentity.of(process.pid, since=0.0)))
    async with showing_signs(journal):
        with pytest.raises(InvalidInput, match="on elsewhere since"):
            async with held(journal, RUN, period=0.5, ttl=PATIENCE_SECONDS):
                pass
    async with held(journal, RUN, period=0.5, ttl=1):
        pass


async def test_a_holder_that_was_followed_ends_before_it_delivers(journal: Journal) -> None:
    """It slept, or was cut off, and somebody elsewhere took the run meanwhile."""
    # Each confirmation reads the store, and no heartbeat comes in between.
    async with held(journal, RUN, period=PATIENCE_SECONDS, ttl=PATIENCE_SECONDS) as run_lock:
        await run_lock.confirm()
        following = await follow(journal)
        with pytest.raises(InvalidInput, match="taken over"):
            await run_lock.confirm()
    assert await journal.latest(run_lock_prefix(RUN), RunLockEntry) == following, "the run stays the other's"


async def test_a_holder_that_was_followed_is_ended_by_its_heartbeat(journal: Journal) -> None:
    with pytest.raises(InvalidInput, match=r"run was taken over by process \d+ on elsewhere"):
        async with held(journal, RUN, period=0.2, ttl=1):
            taking = asyncio.create_task(follow(journal))
            await asyncio.sleep(PATIENCE_SECONDS)
    assert await journal.latest(run_lock_prefix(RUN), RunLockEntry) == await taking


async def follow(journal: Journal) -> RunLockEntry:
    """Somebody elsewhere takes the run."""
    entry = RunLockEntry(holder=elsewhere(ProcessIdentity.of(os.getpid(), since=0.0)))
    return await journal.write(f"{run_lock_prefix(RUN)}000001", entry)
