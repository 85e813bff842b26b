"""What is paused, as the store has it."""

import asyncio
import random
from pathlib import Path

from clotho.identifiers.ids import group_id, rollout_id
from clotho.identifiers.keys import pause_prefix
from clotho.journal import Journal
from clotho.journal.folder import FilesystemStore
from clotho.rollouts.run import PauseEntry
from clotho.runs.pauses import pause, paused_in, read_pauses, reason_for, resume, resume_whole

MANY = 300
BYTES_EACH = 500
"""An entry with one name takes about 200, and its share of those with all names about 100."""


async def test_pauses_at_the_same_time_are_all_kept(tmp_path: Path) -> None:
    journals = [Journal(FilesystemStore(tmp_path)) for _ in range(8)]
    names = [f"run/g{number:06}" for number in range(len(journals))]
    both = zip(journals, names, strict=True)
    await asyncio.gather(*(pause(journal, name, "by hand") for journal, name in both))
    assert sorted(await paused_in(journals[0], "run")) == names


async def test_a_whole_is_resumed_with_its_parts_and_a_part_by_itself(tmp_path: Path) -> None:
    journal = Journal(FilesystemStore(tmp_path))
    for name in ("run", "run/g000000", "run/g000000/r3.1", "run/g000001"):
        await pause(journal, name, f"for {name}")
    await pause(journal, "run", "for another reason")
    assert await reason_for(journal, "run/g000000/r3.2~0001-00") == "for run/g000000/r3.1"
    assert (
        await reason_for(journal, "run/g000007/r0") == await reason_for(journal, "run/~campaign") == "for run"
    )
    assert await resume(journal, "run") and not await resume(journal, "run")
    assert await reason_for(journal, "run") is None
    assert await resume_whole(journal, "run/g000000")
    assert dict(await paused_in(journal, "run")) == {"run/g000001": "for run/g000001"}
    assert await resume_whole(journal, "run") and not await resume_whole(journal, "run")
    assert await paused_in(journal, "run") == {}


async def test_pauses_one_by_one_write_about_as_much_as_their_names(tmp_path: Path) -> None:
    journal = Journal(FilesystemStore(tmp_path))
    names = [rollout_id(group_id("run", number // 8), number % 8) for number in range(MANY)]
    for name in names:
        await pause(journal, name, "by hand")
    assert bytes_below(tmp_path) < MANY * BYTES_EACH
    assert sorted(await paused_in(Journal(FilesystemStore(tmp_path)), "run")) == names
    for name in names:
        await resume_whole(journal, name)
    assert bytes_below(tmp_path) < 2 * MANY * BYTES_EACH
    reader = Journal(FilesystemStore(tmp_path))
    assert await paused_in(reader, "run") == {}
    assert [each.name for each in await read_pauses(reader, "run") if each.until] == names


async def test_every_reader_finds_what_any_writer_has_changed(tmp_path: Path) -> None:
    """Two writers with caches of their own and a reader without, beside the names that should be paused."""
    chance, writers = random.Random(7), [Journal(FilesystemStore(tmp_path)) for _ in range(2)]
    should = dict[str, str]()
    for number in range(MANY):
        name, writer = f"run/g{chance.randrange(60):06}", chance.choice(writers)
        if chance.random() < 0.7:
            await pause(writer, name, f"for {number}")
            should.setdefault(name, f"for {number}")
        else:
            assert await resume(writer, name) == (should.pop(name, None) is not None)
        if number % 50 == 0:
            assert await paused_in(Journal(FilesystemStore(tmp_path)), "run") == should
    assert await paused_in(writers[0], "run") == await paused_in(writers[1], "run") == should
    lasting = {each.name: each.reason for each in await read_pauses(writers[0], "run") if each.until is None}
    assert lasting == should


async def test_entries_that_each_have_all_pauses_are_gone_on_from(tmp_path: Path) -> None:
    journal = Journal(FilesystemStore(tmp_path))
    for number in (1, 2):
        paused = {f"run/g{each:06}": "by hand" for each in range(number)}
        await journal.append(pause_prefix("run"), PauseEntry(paused=paused, at=number))
    await pause(journal, "run/g000002", "by hand")
    await resume(journal, "run/g000000")
    assert sorted(await paused_in(journal, "run")) == ["run/g000001", "run/g000002"]
    assert [each.name for each in await read_pauses(journal, "run")] == [
        f"run/g{number:06}" for number in range(3)
    ]


def bytes_below(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
