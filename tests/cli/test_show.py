"""`clotho show` of what a store holds: tool results as text, and what happened on the way where it happened."""

import json
from pathlib import Path

import pytest

from clotho.identifiers.keys import call_key, group_repairs_prefix, lease_key, prompt_key, turn_key
from clotho.journal import Journal
from clotho.journal.folder import FilesystemStore
from clotho.models.backend import SampledTokens, SampledTurn, Usage
from clotho.models.messages import ChatMessage, FunctionCall, ToolCall
from clotho.models.sampling import Sampling
from clotho.rollouts.call import CallEntry
from clotho.rollouts.group import RepairEntry, SiblingFailure
from clotho.rollouts.lease import Fidelity, LeaseEntry
from clotho.rollouts.rollout import Prompt
from clotho.rollouts.turn import TurnEntry
from tests.cli.command import clotho

ROLLOUT = "shown/g000000/r0"
WRITTEN = {"path": "a.py", "content": "first\n  second"}


def turn(name: str, arguments: dict[str, str], resumed_at: tuple[int, ...] = ()) -> TurnEntry:
    call = ToolCall(id="call", function=FunctionCall(name=name, arguments=json.dumps(arguments)))
    tokens = SampledTokens(
        prompt_ids=(1,),
        ids=(2, 3),
        logprobs=(0.0, 0.0),
        logprobs_mode="processed",
        resumed_at=resumed_at,
    )
    return TurnEntry(
        sampled=SampledTurn(
            message=ChatMessage(role="assistant", tool_calls=(call,)),
            finish_reason="tool_calls",
            usage=Usage(),
            model="scripted",
            sampling=Sampling(),
            started=0.0,
            seconds=1.0,
            tokens=tokens,
        )
    )


def call(tool: str, lease: int, **result: object) -> CallEntry:
    return CallEntry(
        tool=tool,
        content=json.dumps(result),
        error=None,
        state={},
        lease=lease,
        started=0.0,
        seconds=0.1,
        changes=True,
    )


@pytest.fixture
async def store(tmp_path: Path) -> Path:
    """A rollout that was repaired before its second turn, in which it was resumed, and lost its sandbox then."""
    journal = Journal(FilesystemStore(tmp_path / "store"))
    asked = ChatMessage(role="user", content="Do it.")
    await journal.write(
        prompt_key(ROLLOUT), Prompt(item={"name": "first"}, messages=(asked,), seed=0, workspace_files={})
    )
    await journal.write(turn_key(ROLLOUT, 0), turn("terminal", {"command": "ls"}))
    await journal.write(turn_key(ROLLOUT, 1), turn("write_file", WRITTEN, resumed_at=(1,)))
    await journal.write(
        call_key(ROLLOUT, "0000-00"), call("terminal", 0, output='a "b"\n\tc\n', exit_code=2, error=None)
    )
    await journal.write(call_key(ROLLOUT, "0001-00"), call("write_file", 1, bytes_written=14, dirs=["x"]))
    lease = LeaseEntry(incarnation="i", queue="q", system="s", fidelity=Fidelity.REPLAYED)
    await journal.write(lease_key(ROLLOUT, 1), lease)
    failure = SiblingFailure(workflow=ROLLOUT, kind="SandboxLost", reason="its host burnt down")
    repair = RepairEntry(failure=failure, turns=1, sampled_tokens=2, continued_as=ROLLOUT)
    await journal.write(f"{group_repairs_prefix('shown/g000000')}000-000", repair)
    return tmp_path / "store"


async def test_tool_results_are_text_and_disturbances_stand_where_they_happened(store: Path) -> None:
    shown = (await clotho("show", ROLLOUT, "--store", store)).output
    assert '── terminal · 0.100 s\na "b"\n        c\nexit_code 2\n' in shown
    assert 'write_file({"path": "a.py"})\ncontent:\nfirst\n  second\n' in shown
    assert 'bytes_written 14 · dirs ["x"]\n' in shown
    marks = [
        shown.find(mark)
        for mark in (
            "exit_code 2",
            "── repaired: it had failed with its host burnt down",
            "· resumed after token 1\n",
            "── the sandbox was lost; from here on another one, number 1, replayed",
            "bytes_written",
            "not finished",
        )
    ]
    assert -1 not in marks, shown
    assert marks == sorted(marks), shown


async def test_a_group_that_is_not_scored_is_shown(store: Path) -> None:
    shown = (await clotho("show", "shown/g000000", "--store", store)).output
    assert 'item: {"name": "first"}\n' in shown
    assert "│ r0      │ -      │ 2     │ 2          │ -      │ not finished │" in shown
    assert f"{ROLLOUT} went on after 1 turn: its host burnt down\n" in shown
    missing = await clotho("show", "shown/g000007", "--store", store)
    assert "there is no group 'shown/g000007'" in missing.complaint


async def test_the_options_of_a_run_read_well_in_80_columns() -> None:
    narrow = {"COLUMNS": "80", "TERMINAL_WIDTH": "80", "NO_COLOR": "1"}
    said = (await clotho("run", "--help-all", environment=narrow)).output
    panels = [line.split("─ ")[1].split(" ─")[0] for line in said.splitlines() if line.startswith("╭─ ")]
    assert {"Model", "Sampling", "Sandbox", "Rewards and tool results"} <= set(panels)
    assert max(map(len, said.splitlines())) <= 80
    assert "…" not in said
    usual = (await clotho("run", "--help", environment=narrow)).output
    assert len(usual.splitlines()) <= 110, "two screens"
    assert "--keep-diverged" in said and "--keep-diverged" not in usual
