"""One process at a time at one piece of work: the last claim counts, and a live process keeps its own."""

from pathlib import Path

import pytest

from activities.claims import BegunElsewhere, WorkClaims
from clotho.errors import TakenOver
from clotho.journal import Journal
from clotho.journal.folder import FilesystemStore
from clotho.processes.liveness import Liveness, Presence, ServedNamespace

WORK = "run/g000000/r0/claim/verification/"


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    return Journal(FilesystemStore(tmp_path))


def namespace(name: str) -> ServedNamespace:
    async def look_up() -> str:
        return f"id of {name}"

    return ServedNamespace(name, look_up)


def claims_of(journal: Journal, queue: str, served: str = "default") -> WorkClaims:
    return WorkClaims(journal, Presence(journal, namespace(served)), queue)


async def beat(journal: Journal, queue: str, served: str = "default") -> None:
    await Liveness(journal, queue, namespace=namespace(served)).beat()


async def test_the_first_process_keeps_its_claim(journal: Journal) -> None:
    claims = claims_of(journal, "queue-0")
    assert [await claims.take(WORK) for _ in range(3)] == [0, 0, 0]
    await claims.require(WORK, 0)


async def test_work_of_a_live_process_goes_on_there(journal: Journal) -> None:
    await claims_of(journal, "queue-0").take(WORK)
    await beat(journal, "queue-0")
    with pytest.raises(BegunElsewhere) as begun:
        await claims_of(journal, "queue-1").take(WORK)
    assert begun.value.queue == "queue-0"


async def test_work_of_a_dead_process_is_taken_over(journal: Journal) -> None:
    former = claims_of(journal, "queue-0")
    await former.take(WORK)
    assert await claims_of(journal, "queue-1").take(WORK) == 1
    with pytest.raises(TakenOver):
        await former.require(WORK, 0)


async def test_a_process_started_again_takes_over_what_its_queue_had_begun(journal: Journal) -> None:
    """Its predecessor's heartbeat may be fresh, but no two processes serve one queue."""
    await claims_of(journal, "queue-0").take(WORK)
    await beat(journal, "queue-0")
    assert await claims_of(journal, "queue-0").take(WORK) == 1


async def test_work_of_a_process_that_serves_another_namespace_is_taken_over(journal: Journal) -> None:
    """It lives, and no step of this namespace would ever be taken there."""
    await claims_of(journal, "queue-0", "former").take(WORK)
    await beat(journal, "queue-0", "former")
    assert await claims_of(journal, "queue-1").take(WORK) == 1
    with pytest.raises(BegunElsewhere):
        await claims_of(journal, "queue-2", "former").take(WORK + "other/")
        await beat(journal, "queue-2", "former")
        await claims_of(journal, "queue-0", "former").take(WORK + "other/")
