"""The page of a rollout that was killed, repaired and resumed; of damaged ones, and of very long ones."""

import re
from pathlib import Path

import httpx
import pytest

from clotho.identifiers.keys import (
    attempt_prefix,
    call_key,
    end_key,
    group_repairs_prefix,
    lease_key,
    prompt_key,
    reward_key,
    turn_key,
)
from clotho.journal import Journal
from clotho.journal.folder import FilesystemStore
from clotho.models.messages import ChatMessage
from clotho.plugins.viewer.markup import CLIPPED_CHARACTERS
from clotho.plugins.viewer.rendering import MEANINGS
from clotho.rollouts.group import AttemptEntry, RepairEntry, SiblingFailure
from clotho.rollouts.lease import Fidelity, Lease, LeaseEntry
from clotho.rollouts.outcome import Ending, Outcome
from clotho.rollouts.rollout import EndEntry, Prompt, RolloutSummary
from clotho.rollouts.verification import RewardEntry
from clotho.runs.disturbances import Disturbance
from tests.cli.test_show import call, turn
from tests.support import PATIENCE_SECONDS, eventually
from tests.viewer.conftest import StartViewer
from tests.viewer.stored import write_group, write_run

ROLLOUT = "shown/g000000/r0"
PAGE = f"/r/{ROLLOUT}"
SIBLINGS = (ROLLOUT, "shown/g000000/r1")
PLACES = (ROLLOUT, "shown/g000000")
NOWHERE = {"CLOTHO_TEMPORAL__ADDRESS": "127.0.0.1:1"}


@pytest.fixture
async def journal(tmp_path: Path) -> Journal:
    """A store with a rollout that has a prompt."""
    journal = Journal(FilesystemStore(tmp_path / "store"))
    await write_run(journal, "shown", 1)
    asked = ChatMessage(role="user", content="Do it.")
    await journal.write(prompt_key(ROLLOUT), Prompt(item={}, messages=(asked,), seed=0))
    return journal


def text_of(page: str) -> str:
    return " ".join(re.sub(r"<[^>]*>", " ", page).split())


async def test_marks_tell_why_a_rollout_got_its_reward(
    journal: Journal, tmp_path: Path, view: StartViewer
) -> None:
    await journal.write(turn_key(ROLLOUT, 0), turn("terminal", {"command": "ls"}))
    await journal.write(call_key(ROLLOUT, "0000-00"), call("terminal", 0, output="one\ntwo", exit_code=2))
    await journal.write(turn_key(ROLLOUT, 1), turn("write_file", {"path": "a"}, resumed_at=(1,)))
    await journal.write(call_key(ROLLOUT, "0001-00"), call("write_file", 1, bytes_written=14))
    lease = LeaseEntry(incarnation="i", queue="q", system="s", fidelity=Fidelity.DIVERGED)
    await journal.write(lease_key(ROLLOUT, 1), lease)
    failure = SiblingFailure(workflow=ROLLOUT, kind="HostUnavailable", reason="its host burnt down")
    repair = RepairEntry(failure=failure, turns=1, sampled_tokens=2, continued_as=ROLLOUT)
    await journal.write(f"{group_repairs_prefix('shown/g000000')}000-000", repair)
    reward = RewardEntry(
        score=0.25,
        breakdown={"format": 1.0, "answer": 0.0},
        log="the answer is wrong",
        lease=None,
        epoch=1,
        seconds=0.5,
    )
    await journal.write(reward_key(ROLLOUT), reward)
    url = await view(tmp_path / "store", **NOWHERE)
    async with httpx.AsyncClient(base_url=url, timeout=PATIENCE_SECONDS) as client:
        shown = text_of((await client.get(PAGE)).text)
        marks = [
            *("0.25 partial · verified in 500 ms, at attempt 2", "format 1", "the answer is wrong"),
            *("turn 0", "output: one two", "It had failed with HostUnavailable : its host burnt down."),
            *("It was interrupted, and resumed after token 1.", "The sandbox was lost."),
            *("another one: diverged", "bytes_written: 14"),
        ]
        at = [shown.find(mark, shown.find("Reward Time")) for mark in marks]
        assert -1 not in at, dict(zip(marks, at, strict=True))
        conversation = [shown.find(mark, shown.find("Do it.")) for mark in marks[4:]]
        assert conversation == sorted(conversation) and -1 not in conversation
        group = text_of((await client.get("/r/shown/g000000")).text)
        assert "r0 failed after 1 turn and 2 tokens with HostUnavailable : its host burnt down" in group

        async def run_is_read() -> bool:
            """A page waits only a moment for the index of its run."""
            run = text_of((await client.get("/r/shown")).text)
            return "r0 · 2 turns" in run and "HostUnavailable 1" in run

        await eventually(run_is_read, "the group that is open, and the failure")
        tokens = text_of((await client.get(f"{PAGE}/tokens")).text)
        assert "isn't on this machine: tokens are shown by their numbers" in tokens


async def test_a_failure_without_a_reward_is_told_in_full(
    journal: Journal, tmp_path: Path, view: StartViewer
) -> None:
    reason = 'EnvironmentFailed: RuntimeError("the service answered 502")'
    failures = [SiblingFailure(workflow=each, kind="EnvironmentFailed", reason=reason) for each in SIBLINGS]
    attempt = AttemptEntry(siblings=(), failures=tuple(reversed(failures)))
    await journal.write(f"{attempt_prefix('shown/g000000')}000", attempt)
    await journal.write(turn_key(ROLLOUT, 0), turn("terminal", {"command": "ls"}))
    url = await view(tmp_path / "store", **NOWHERE)
    why = "EnvironmentFailed : RuntimeError(&#34;the service answered 502&#34;)"
    async with httpx.AsyncClient(base_url=url, timeout=PATIENCE_SECONDS) as client:
        rollout, group = [text_of((await client.get(f"/r/{name}")).text) for name in PLACES]

        async def run_is_read() -> bool:
            return f"2 × {why}" in text_of((await client.get("/r/shown")).text)

        await eventually(run_is_read, "the failures on the page of the run")
    assert f"Why it has no reward It ended with {why}" in rollout
    assert "g000000/r0 failed" in rollout and "clotho retry shown/g000000" in rollout
    assert "g000000 failed" in group and "r0 failed 1 0" in group and "clotho retry shown/g000000" in group
    assert f"r0 ended with {why} r1 ended with {why}" in group


async def test_a_rollout_that_was_replaced_names_the_one_in_its_place(
    journal: Journal, tmp_path: Path, view: StartViewer
) -> None:
    failure = SiblingFailure(workflow=ROLLOUT, kind="SandboxLost", reason="3 sandboxes were lost")
    repair = RepairEntry(failure=failure, turns=0, sampled_tokens=0, continued_as=f"{ROLLOUT}.1")
    await journal.write(f"{group_repairs_prefix('shown/g000000')}000-000", repair)
    url = await view(tmp_path / "store", **NOWHERE)
    async with httpx.AsyncClient(base_url=url, timeout=PATIENCE_SECONDS) as client:
        page = (await client.get(PAGE)).text
    assert "It has none: it failed, and r0.1 took its place." in text_of(page)
    assert f'href="{PAGE}.1"' in page


async def test_a_scored_group_keeps_its_failed_attempts(
    journal: Journal, tmp_path: Path, view: StartViewer
) -> None:
    failure = SiblingFailure(workflow=ROLLOUT, kind="HostUnavailable", reason="its host burnt down")
    attempt = AttemptEntry(siblings=(), failures=(failure,))
    await journal.write(f"{attempt_prefix('shown/g000000')}000", attempt)
    await write_group(journal, "shown", 0, 0.0, 1.0)
    url = await view(tmp_path / "store", **NOWHERE)
    async with httpx.AsyncClient(base_url=url, timeout=PATIENCE_SECONDS) as client:
        group = text_of((await client.get("/r/shown/g000000")).text)
    assert "attempts that failed r0 ended with HostUnavailable : its host burnt down" in group
    assert "clotho retry" not in group


async def test_the_way_of_a_disturbed_rollout_is_told_in_sentences(
    journal: Journal, tmp_path: Path, view: StartViewer
) -> None:
    await journal.write(turn_key(ROLLOUT, 0), turn("terminal", {"command": "ls"}))
    await journal.write(call_key(ROLLOUT, "0000-00"), call("terminal", 0, output="one", exit_code=0))
    lease = Lease(number=1, queue="q", fidelity=Fidelity.REPLAYED)
    await journal.write(
        reward_key(ROLLOUT), RewardEntry(score=0.5, breakdown={}, log="", lease=lease, epoch=0, seconds=0.5)
    )
    summary = RolloutSummary(
        rollout=ROLLOUT,
        ending=Ending(outcome=Outcome.COMPLETED),
        score=0.5,
        turns=1,
        losses=(Fidelity.REPLAYED,),
    )
    await journal.write(end_key(ROLLOUT), EndEntry(summary=summary))
    url = await view(tmp_path / "store", **NOWHERE)
    async with httpx.AsyncClient(base_url=url, timeout=PATIENCE_SECONDS) as client:
        shown = text_of((await client.get(PAGE)).text)
    for kind in (Disturbance.SANDBOX_LOST, Disturbance.REPLAYED):
        assert f"{kind.replace('_', ' ')} : {MEANINGS[kind]}" in shown
    assert "None of this is in the reward" in shown
    assert "The sandbox was lost after the last call. It was verified in another one." in shown
    assert set(MEANINGS) == set(Disturbance)


async def test_a_damaged_entry_hides_no_other(journal: Journal, tmp_path: Path, view: StartViewer) -> None:
    for number in range(3):
        await journal.write(turn_key(ROLLOUT, number), turn("terminal", {"command": f"echo {number}"}))
    (tmp_path / "store" / turn_key(ROLLOUT, 1)).write_text("<b>damaged</b>\n")
    url = await view(tmp_path / "store", **NOWHERE)
    async with httpx.AsyncClient(base_url=url, timeout=PATIENCE_SECONDS) as client:
        answer = await client.get(PAGE)
        assert answer.status_code == 200
        shown = text_of(answer.text)
        assert "echo 0" in shown and "echo 2" in shown
        assert f"journal entry {turn_key(ROLLOUT, 1)} has no readable header" in shown
        assert "This turn can't be read." in shown
        entry = await client.get(f"/entry/{turn_key(ROLLOUT, 1)}")
        assert entry.text == "<b>damaged</b>\n"


@pytest.mark.slow
async def test_a_long_rollout_is_shown_in_parts(journal: Journal, tmp_path: Path, view: StartViewer) -> None:
    for number in range(120):
        await journal.write(turn_key(ROLLOUT, number), turn("terminal", {"command": f"step {number}."}))
    huge = "line\n" * 1_000_000
    await journal.write(call_key(ROLLOUT, "0000-00"), call("terminal", 0, output=huge))
    url = await view(tmp_path / "store", **NOWHERE)
    async with httpx.AsyncClient(base_url=url, timeout=PATIENCE_SECONDS) as client:
        first = await client.get(PAGE)
        assert len(first.text) < CLIPPED_CHARACTERS + 500_000
        assert "step 49." in first.text and "step 50." not in first.text
        assert "characters." in text_of(first.text)
        whole = await client.get(f"/entry/{call_key(ROLLOUT, '0000-00')}")
        assert len(whole.text) > len(huge)
        last = await client.get(PAGE, params={"from": "100"})
        assert "step 100." in last.text and "step 119." in last.text
        assert (await client.get(PAGE, params={"from": "5000"})).status_code == 200
        assert (await client.get(PAGE, params={"from": "-1"})).status_code == 200
