"""The calls of a verifier: answered again as they were first, or the verifier has to begin anew."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from clotho.environment.numbered_calls import MOST_KEPT, CallAnswer, JournalledCalls
from clotho.errors import CommandConflict, SandboxUnavailable, WorkspaceRefused
from clotho.journal import Journal
from clotho.journal.folder import FilesystemStore

PREFIX = "run/g000000/r0/answers/000/0/"

Call = Callable[[str], Awaitable[str | None]]


class Attempt:
    """One attempt at a verification; `made` are the calls that weren't answered from before."""

    def __init__(self, calls: JournalledCalls) -> None:
        self.calls = calls
        self.made: list[str] = []

    async def call(self, name: str, answer: str = "", changes: bool = False) -> str | None:
        async def work(number: int) -> CallAnswer:
            self.made.append(f"{number} {name}")
            return CallAnswer(text=answer or f"answer of {name}")

        return (await self.calls.answer("call_tool", (name,), changes, work)).text

    async def interrupted(self, name: str, changes: bool = False) -> None:
        async def work(number: int) -> CallAnswer:
            raise SandboxUnavailable("the process died")

        with pytest.raises(SandboxUnavailable):
            await self.calls.answer("call_tool", (name,), changes, work)


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    return Journal(FilesystemStore(tmp_path))


async def attempt(journal: Journal) -> Attempt:
    return Attempt(await JournalledCalls.read(journal, PREFIX))


async def test_calls_are_answered_again_as_they_were_first(journal: Journal) -> None:
    first = await attempt(journal)
    await first.call("read", "right")
    await first.call("list", "one file")
    again = await attempt(journal)
    assert await again.call("read", "gone by now") == "right"
    assert await again.call("list", "none") == "one file"
    assert await again.call("remove") == "answer of remove"
    assert again.made == ["2 remove"]
    again.calls.require_all_made()


async def test_an_interrupted_call_is_made_again_under_its_number(journal: Journal) -> None:
    first = await attempt(journal)
    await first.call("read")
    await first.interrupted("remove")
    again = await attempt(journal)
    await again.call("read")
    await again.call("remove")
    assert again.made == ["1 remove"]


async def test_another_call_than_before_is_a_conflict_and_so_is_all_after_it(journal: Journal) -> None:
    first = await attempt(journal)
    await first.call("mv answer 1")
    again = await attempt(journal)
    for name in ("mv answer 2", "mv answer 1"):
        with pytest.raises(CommandConflict):
            await again.call(name)
    assert not again.made


async def test_a_change_that_was_begun_is_known_by_its_arguments(journal: Journal) -> None:
    """A file that was written under a name drawn at random is there, whether or not its answer was journalled."""
    first = await attempt(journal)
    await first.interrupted("write file-1", changes=True)
    with pytest.raises(CommandConflict):
        await (await attempt(journal)).call("write file-2", changes=True)
    same = await attempt(journal)
    await same.call("write file-1", changes=True)
    assert same.made == ["0 write file-1"]


async def test_calls_left_out_are_a_conflict_at_the_end(journal: Journal) -> None:
    first = await attempt(journal)
    await first.call("read")
    with pytest.raises(CommandConflict, match="not made again"):
        (await attempt(journal)).calls.require_all_made()


async def test_the_second_of_equal_calls_has_the_second_answer(journal: Journal) -> None:
    first = await attempt(journal)
    await first.call("ls", "before")
    await first.call("rm")
    await first.call("ls", "after")
    again = await attempt(journal)
    assert [await again.call(name) for name in ("ls", "rm", "ls")] == ["before", "answer of rm", "after"]
    skipped = await attempt(journal)
    assert await skipped.call("ls") == "before"
    with pytest.raises(CommandConflict):
        await skipped.call("ls")


async def test_calls_side_by_side_may_come_in_another_order(journal: Journal) -> None:
    first, go = await attempt(journal), asyncio.Event()

    async def held(number: int) -> CallAnswer:
        await go.wait()
        return CallAnswer(text="slow one")

    slow = asyncio.create_task(first.calls.answer("call_tool", ("slow",), False, held))
    await asyncio.sleep(0)
    await first.call("quick", "quick one")
    go.set()
    await slow
    await first.call("after")
    again = await attempt(journal)
    assert tuple(await asyncio.gather(again.call("quick"), again.call("slow"))) == ("quick one", "slow one")
    assert await again.call("after") == "answer of after"
    assert not again.made


async def test_a_call_that_was_under_way_beside_others_is_made_again(journal: Journal) -> None:
    first = await attempt(journal)

    async def dies(number: int) -> CallAnswer:
        await asyncio.sleep(0.05)
        raise SandboxUnavailable("the process died")

    dying = asyncio.create_task(first.calls.answer("call_tool", ("slow",), False, dies))
    await asyncio.sleep(0)
    await first.call("quick")
    with pytest.raises(SandboxUnavailable):
        await dying
    again = await attempt(journal)
    await asyncio.gather(again.call("quick"), again.call("slow"))
    assert again.made == ["0 slow"]


async def test_a_long_answer_is_had_again_and_compared(journal: Journal) -> None:
    first, long = await attempt(journal), "x" * (MOST_KEPT + 1)
    assert await first.call("read", long) == long
    again = await attempt(journal)
    assert await again.call("read", long) == long
    assert again.made == ["0 read"]
    with pytest.raises(CommandConflict, match="answered otherwise"):
        await (await attempt(journal)).call("read", f"{long[1:]}y")


async def test_what_the_agent_made_unusable_stays_so(journal: Journal) -> None:
    async def refuse(number: int) -> CallAnswer:
        raise WorkspaceRefused("it is a folder")

    async def never(number: int) -> CallAnswer:
        raise AssertionError("it was answered before")

    for work in (refuse, never):
        calls = (await attempt(journal)).calls
        with pytest.raises(WorkspaceRefused, match="it is a folder"):
            await calls.answer("write_bytes", ("/work/x", b"content"), True, work)


async def test_a_late_answer_of_a_process_that_was_taken_over_doesnt_count(journal: Journal) -> None:
    former, newer = await attempt(journal), await attempt(journal)
    assert await newer.call("read", "first") == "first"
    assert await former.call("read", "late") == "first"
