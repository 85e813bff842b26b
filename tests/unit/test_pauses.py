"""What is paused, as the store has it."""

import asyncio
from pathlib import Path

from clotho.journal import Journal
from clotho.journal.folder import FilesystemStore
from clotho.runs.pauses import pause, paused_in, reason_for, resume, resume_whole


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
