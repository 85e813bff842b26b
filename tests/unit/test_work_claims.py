"""One process at a time at one piece of work: the last claim counts, and a live process keeps its own."""

from pathlib import Path

import pytest

from activities.claims import BegunElsewhere, WorkClaims
from clotho.errors import TakenOver
from clotho.journal import Journal
from clotho.journal.folder import FilesystemStore
from clotho.processes.liveness import Liveness

WORK = "run/g000000/r0/claim/verification/"


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    return Journal(FilesystemStore(tmp_path))


async def test_the_first_process_keeps_its_claim(journal: Journal) -> None:
    claims = WorkClaims(journal, "queue-0")
    assert [await claims.take(WORK) for _ in range(3)] == [0, 0, 0]
    await claims.require(WORK, 0)


async def test_work_of_a_live_process_goes_on_there(journal: Journal) -> None:
    await WorkClaims(journal, "queue-0").take(WORK)
    await Liveness(journal, "queue-0").beat()
    with pytest.raises(BegunElsewhere) as begun:
        await WorkClaims(journal, "queue-1").take(WORK)
    assert begun.value.queue == "queue-0"


async def test_work_of_a_dead_process_is_taken_over(journal: Journal) -> None:
    former = WorkClaims(journal, "queue-0")
    await former.take(WORK)
    assert await WorkClaims(journal, "queue-1").take(WORK) == 1
    with pytest.raises(TakenOver):
        await former.require(WORK, 0)


async def test_a_process_started_again_takes_over_what_its_queue_had_begun(journal: Journal) -> None:
    """Its predecessor's heartbeat may be fresh, but no two processes serve one queue."""
    await WorkClaims(journal, "queue-0").take(WORK)
    await Liveness(journal, "queue-0").beat()
    assert await WorkClaims(journal, "queue-0").take(WORK) == 1
