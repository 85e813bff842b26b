"""Logging to Weights & Biases, which writes to files as it does offline."""

import asyncio
from pathlib import Path

import pytest

from clotho.cli.progress import View
from clotho.errors import InvalidInput
from clotho.identifiers.ids import call_id
from clotho.identifiers.keys import call_key, prompt_key, turn_key
from clotho.journal import Journal
from clotho.journal.folder import FilesystemStore
from clotho.models.backend import SampledTurn, Usage
from clotho.models.messages import ChatMessage, FunctionCall, ToolCall
from clotho.models.sampling import Sampling
from clotho.plugins.wandb import run_log as wandb_log
from clotho.rollouts.call import CallEntry
from clotho.rollouts.campaign import CampaignProgress
from clotho.rollouts.rollout import Prompt
from clotho.rollouts.turn import TurnEntry
from clotho.runs.counts import RunCounts
from clotho.runs.request import run_manifest
from tests.cli.command import clotho
from tests.support import ONE_FILE, eventually
from tests.viewer.stored import write_group, write_run

RUN = "logged"
CALL = ToolCall(id="1", function=FunctionCall(name="terminal", arguments='{"command": "ls"}'))
LOGGED = (
    *(
        "groups/scored",
        "groups/running",
        "rollouts/failed",
        "rollouts/scored",
        "reward/mean",
        "tokens/sampled",
    ),
    *("reward/histogram", "outcomes/completed", "groups/rewards", "transcripts"),
)


async def write_transcript(journal: Journal, rollout: str, turns: int) -> None:
    """A call of the terminal, then words."""

    def turn(content: str, *calls: ToolCall) -> TurnEntry:
        sampled = SampledTurn(
            message=ChatMessage(role="assistant", content=content, tool_calls=calls),
            finish_reason="stop",
            usage=Usage(),
            model="scripted",
            sampling=Sampling(),
            started=0.0,
            seconds=0.1,
        )
        return TurnEntry(sampled=sampled)

    result = CallEntry(
        tool="terminal",
        content="score",
        error=None,
        state={},
        lease=0,
        started=0.0,
        seconds=0.1,
        changes=True,
    )
    prompt = Prompt(item={}, messages=(ChatMessage(role="user", content="task"),), seed=0)
    await journal.write(prompt_key(rollout), prompt)
    await journal.write(turn_key(rollout, 0), turn("I look.", CALL))
    await journal.write(call_key(rollout, call_id(0, 0)), result)
    for number in range(1, turns):
        await journal.write(turn_key(rollout, number), turn(f"Turn {number}."))


async def test_a_run_is_logged_with_its_rewards_and_transcripts(wandb_folder: Path) -> None:
    journal = Journal(FilesystemStore(wandb_folder / "store"))
    await write_run(journal, RUN, 3)
    for item in range(2):
        await write_group(journal, RUN, item, 1.0, 0.25)
        for sibling in range(2):
            await write_transcript(journal, f"{RUN}/g{item:06}/r{sibling}", 2 + sibling)
    progress = CampaignProgress(groups=3, running=1, scored=2, rollouts=4, reward_sum=2.5)
    async with wandb_log.wandb_log("shown", journal, run_manifest(ONE_FILE, RUN, "scripted")) as log:
        log.show(View())
        log.show(View(progress=progress, counts=RunCounts(rollouts=4, reward_sum=2.5), group_size=2))
        await log.conclude(journal, RUN)
    (record,) = wandb_folder.rglob("run-*.wandb")
    assert record.stem == f"run-{wandb_log.wandb_id(journal, RUN)}", "the same id whoever follows the run"

    async def logged() -> bool:  # its own process writes the file
        content = await asyncio.to_thread(record.read_bytes)
        return all(name.encode() in content for name in LOGGED)

    await eventually(logged, f"{LOGGED} in {record}")
    (transcripts,) = wandb_folder.rglob("transcripts_*.table.json")
    table = transcripts.read_text()
    assert "logged/g000001/r1" in table
    assert "[TOOL CALL] terminal(" in table
    assert "[TOOL RESULT]\\nscore" in table


def test_a_run_has_one_id_in_each_store(tmp_path: Path) -> None:
    here, there = (Journal(FilesystemStore(tmp_path / name)) for name in ("here", "there"))
    again = Journal(FilesystemStore(tmp_path / "here"))
    assert wandb_log.wandb_id(here, RUN) == wandb_log.wandb_id(again, RUN) != wandb_log.wandb_id(there, RUN)


async def test_what_wandb_refuses_is_said(wandb_folder: Path) -> None:
    journal = Journal(FilesystemStore(wandb_folder / "store"))
    with pytest.raises(InvalidInput, match=r"--wandb: .*the run goes on without"):
        async with wandb_log.wandb_log("a/project", journal, run_manifest(ONE_FILE, RUN, "scripted")):
            pass


async def test_what_is_not_followed_is_not_logged(tmp_path: Path) -> None:
    refused = await clotho(
        *("run", ONE_FILE, "--run", RUN, "--model", "http://127.0.0.1:1/v1", "--detach"),
        *("--wandb", "shown", "--store", tmp_path / "store"),
    )
    assert refused.complaint == "clotho: --wandb logs while the run is followed: leave --detach out"
