"""Replays of a task whose files have changed since it was rolled out."""

import shutil
from pathlib import Path

import pytest

from clotho.cli.run_options import RunOptions
from clotho.config import Settings
from clotho.environment import Item
from clotho.environment.instances import EnvironmentProcesses
from clotho.errors import InvalidInput
from clotho.identifiers.keys import prompt_key, scored_key
from clotho.journal import Journal
from clotho.journal.folder import FilesystemStore
from clotho.rollouts.agent import AgentKind
from clotho.rollouts.group import GroupEntry
from clotho.rollouts.outcome import Ending, Outcome
from clotho.rollouts.rollout import Prompt, RolloutSummary
from clotho.runs.plans import with_plan

FOLDERS = Path(__file__).parent / "folders"


async def replayed(journal: Journal, folder: Path, item: Item) -> Prompt:
    """The prompt of the rollout that replays that of run `first`."""
    options = RunOptions(agent=AgentKind.REPLAY, replays="first")
    manifest = options.manifest(f"tasks:{folder}", "second", 1, Settings())
    async with EnvironmentProcesses() as environments:
        environment = await environments.get(manifest)
        prompt = Prompt(item=item, messages=(), seed=0)
        return await with_plan(journal, environment, manifest, prompt, "second/g000000/r0")


async def test_a_task_with_mended_tests_is_replayed_and_another_task_is_not(tmp_path: Path) -> None:
    folder = shutil.copytree(FOLDERS / "hello-file", tmp_path / "task")
    journal = Journal(FilesystemStore(tmp_path / "journal"))
    recorded = "first/g000000/r0"
    summary = RolloutSummary(
        rollout=recorded,
        ending=Ending(outcome=Outcome.COMPLETED),
        score=1.0,
        turns=0,
        tool_calls=0,
        tool_errors=0,
        prompt_tokens=0,
        sampled_tokens=0,
        active_seconds=0.0,
    )
    item: Item = {"id": "hello-file", "digest": "before"}
    await journal.write(prompt_key(recorded), Prompt(item=item, messages=(), seed=0))
    await journal.write(scored_key("first/g000000"), GroupEntry(item=item, toolsets=(), siblings=(summary,)))
    assert (await replayed(journal, folder, {**item, "digest": "mended"})).plan == ()
    with pytest.raises(InvalidInput, match="rolled another item out"):
        await replayed(journal, folder, {**item, "id": "another"})
