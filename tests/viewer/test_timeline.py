"""Where a rollout's time went: steps, and what lay between them."""

from pathlib import Path

from clotho.journal import Journal
from clotho.journal.folder import FilesystemStore
from clotho.plugins.viewer.rollout import TurnView
from clotho.plugins.viewer.timeline import timeline
from clotho.runs.pauses import Pause, pause, pauses_of, read_pauses, resume
from tests.cli.test_show import turn


def shown(number: int, started: float, seconds: float) -> TurnView:
    entry = turn("terminal", {"command": "true"})
    assert entry.sampled is not None
    sampled = entry.sampled.model_copy(update={"started": started, "seconds": seconds})
    return TurnView(number, "key", entry.model_copy(update={"sampled": sampled}), (), [])


def test_a_pause_is_told_from_other_waiting() -> None:
    turns = [shown(0, 100.0, 2.0), shown(1, 130.0, 1.0)]
    pauses = [
        Pause("run", "by hand", 95.0, 97.0),
        Pause("run", "by hand", 110.0, 120.0),
        Pause("run", "by hand", 131.0, None),
    ]
    line = timeline(turns, None, pauses)
    assert line is not None
    assert [(span.kind, span.start, span.seconds) for span in line.spans] == [
        ("model", 0.0, 2.0),
        ("wait", 2.0, 8.0),
        ("pause", 10.0, 10.0),
        ("wait", 20.0, 10.0),
        ("model", 30.0, 1.0),
    ]
    assert line.seconds == 31.0


def test_a_pause_that_lasts_fills_the_gap_that_it_began_in() -> None:
    line = timeline(
        [shown(0, 100.0, 1.0), shown(1, 105.0, 1.0)], None, [Pause("run", "by hand", 101.0, None)]
    )
    assert line is not None
    assert [span.kind for span in line.spans] == ["model", "pause", "model"]


def test_pauses_of_the_run_and_the_rollout_that_overlap_count_once() -> None:
    pauses = [
        Pause("run", "by hand", 104.0, 108.0),
        Pause("run", "by hand", 102.0, 106.0),
        Pause("run", "by hand", 103.0, 104.0),
    ]
    line = timeline([shown(0, 100.0, 1.0), shown(1, 110.0, 1.0)], None, pauses)
    assert line is not None
    assert line.totals == {"model": 2.0, "wait": 3.0, "pause": 6.0}


async def test_pauses_of_a_run_are_in_its_store(tmp_path: Path) -> None:
    journal = Journal(FilesystemStore(tmp_path))
    for _ in range(2):
        await pause(journal, "paused", "by hand")
        await resume(journal, "paused")
    await pause(journal, "paused", "its budget is met")
    await pause(journal, "paused/g000001", "by hand")
    pauses = await read_pauses(journal, "paused")
    first, second, last = pauses_of(pauses, "paused/g000000/r0")
    assert first.until is not None and second.until is not None
    assert first.since <= first.until <= second.since <= second.until <= last.since
    assert (last.reason, last.until) == ("its budget is met", None)
    assert [each.name for each in pauses_of(pauses, "paused/g000001/r3.1~0004-00")[2:]] == [
        "paused",
        "paused/g000001",
    ]
