"""Who asks for a turn: its process, as long as that doesn't fall silent, and else the first that claims it."""

import os
import time
from pathlib import Path

import pytest
from temporalio.testing import ActivityEnvironment

from activities.claims import BegunElsewhere
from activities.turn_claims import TurnClaims
from clotho.errors import TakenOver
from clotho.identifiers.keys import process_key, turn_claims_prefix, turn_key
from clotho.journal import Journal
from clotho.journal.folder import FilesystemStore
from clotho.processes.liveness import LIVENESS_SECONDS, Liveness, Presence, ServedNamespace
from clotho.rollouts.turn import ChosenProcess, TurnEntry, TurnRequest

ROLLOUT = "run/g000000/r0"
TURN = TurnRequest(rollout=ROLLOUT, turn=3)
PREFIX = turn_claims_prefix(ROLLOUT, 3)


class Suspended:
    """The clock of a machine that was suspended."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return time.clock_gettime(time.CLOCK_BOOTTIME) + self.seconds


@pytest.fixture
def suspended(monkeypatch: pytest.MonkeyPatch) -> Suspended:
    clock = Suspended()
    monkeypatch.setattr("clotho.processes.liveness.boot_seconds", clock)
    monkeypatch.setattr("activities.turn_claims.boot_seconds", clock)
    return clock


class Process:
    """One process that calls models, on the store in a folder."""

    def __init__(self, store: Path, queue: str) -> None:
        async def look_up() -> str:
            return "id"

        self._store = store
        journal, namespace = Journal(FilesystemStore(store)), ServedNamespace("default", look_up)
        self.journal = journal
        self.liveness = Liveness(journal, queue, namespace=namespace)
        self.claims = TurnClaims(journal, Presence(journal, namespace), self.liveness, queue)

    async def begin(self, home: str) -> None:
        await self.claims.begin(TURN, await self.claims.look(TURN), home)

    def fall_silent(self) -> None:
        """Have its heartbeats be older, for others that look."""
        for file in (self._store / "~present").rglob("*"):
            os.utime(file, (file.stat().st_mtime - LIVENESS_SECONDS - 1,) * 2)


@pytest.fixture
async def one(tmp_path: Path) -> Process:
    process = Process(tmp_path, "one")
    await process.liveness.beat()
    return process


@pytest.fixture
async def other(tmp_path: Path) -> Process:
    process = Process(tmp_path, "other")
    await process.liveness.beat()
    return process


async def test_nothing_is_written_where_a_process_goes_on_with_its_own_turns(one: Process) -> None:
    before = await one.journal.keys("~present/")
    look = await one.claims.look(TURN)
    await one.claims.begin(TURN, look, "one")
    await one.claims.require(TURN, look)
    assert await one.journal.keys(PREFIX) == []
    assert await one.journal.keys("~present/") == before


async def test_a_turn_of_a_process_that_lives_is_left_to_it(one: Process, other: Process) -> None:
    with pytest.raises(BegunElsewhere) as begun:
        await other.begin("one")
    assert begun.value.queue == "one"
    assert await other.journal.keys(PREFIX) == []


async def test_a_frozen_process_leaves_the_turn_to_who_took_it_over(
    one: Process, other: Process, suspended: Suspended
) -> None:
    look = await one.claims.look(TURN)
    await one.claims.begin(TURN, look, "one")
    suspended.seconds += LIVENESS_SECONDS + 1
    one.fall_silent()
    await other.liveness.beat()
    await other.begin("one")
    with pytest.raises(BegunElsewhere) as begun:
        await one.claims.require(TURN, look)
    assert begun.value.queue == "other"
    with pytest.raises(BegunElsewhere):  # nor does it begin the turn anew, though the turn before names it
        await one.begin("one")
    await other.begin("one")


async def test_a_frozen_process_whose_heartbeats_came_back_before_it_asks_is_not_deceived(
    one: Process, other: Process, suspended: Suspended
) -> None:
    look = await one.claims.look(TURN)
    suspended.seconds += LIVENESS_SECONDS + 1
    one.fall_silent()
    await other.liveness.beat()
    await other.begin("one")
    await one.liveness.beat()
    with pytest.raises(BegunElsewhere):
        await one.claims.require(TURN, look)


async def test_a_frozen_process_asks_for_no_turn_of_a_rollout_that_was_sealed_meanwhile(
    one: Process, other: Process, suspended: Suspended
) -> None:
    look = await one.claims.look(TURN)
    suspended.seconds += LIVENESS_SECONDS + 1
    one.fall_silent()
    await other.liveness.beat()
    await other.begin("one")
    await other.journal.write(turn_key(ROLLOUT, 3), TurnEntry(sampled=None))
    await other.journal.seal(ROLLOUT)
    with pytest.raises(TakenOver):
        await one.claims.require(TURN, look)
    assert await one.journal.keys(PREFIX) == []


async def test_a_frozen_process_that_nobody_has_replaced_keeps_its_turn(
    one: Process, other: Process, suspended: Suspended
) -> None:
    look = await one.claims.look(TURN)
    suspended.seconds += LIVENESS_SECONDS + 1
    one.fall_silent()
    await one.claims.require(TURN, look)
    with pytest.raises(BegunElsewhere):
        await other.begin("one")


async def test_a_turn_of_a_process_that_took_it_over_and_died_is_taken_over_in_turn(
    one: Process, other: Process
) -> None:
    one.fall_silent()
    await other.liveness.beat()
    await other.begin("one")
    other.fall_silent()
    await one.liveness.beat()
    await one.begin("one")
    assert len(await one.journal.keys(PREFIX)) == 2


async def test_the_first_turn_belongs_to_the_process_that_the_workflow_has_chosen(
    one: Process, other: Process
) -> None:
    attempt = ActivityEnvironment()
    key = process_key(ROLLOUT, attempt.info.workflow_run_id or "")
    await one.journal.write(key, ChosenProcess(queue="one"))
    with pytest.raises(BegunElsewhere):
        await attempt.run(other.begin, "")
    one.fall_silent()
    await attempt.run(other.begin, "")
    assert len(await one.journal.keys(PREFIX)) == 1
