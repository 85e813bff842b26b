"""A plugin: a format of `clotho export`, a command, a check of `clotho doctor`, a tool, and their settings."""

import asyncio
from collections.abc import Collection
from pathlib import Path
from typing import Annotated, ClassVar

import typer
from pydantic import Field

from clotho.cli.doctor.findings import Examination, Finding
from clotho.cli.options import Store, existing_journal
from clotho.config import load_settings
from clotho.evaluation.figures import Figures
from clotho.evaluation.results import read_results
from clotho.journal import Journal
from clotho.plugin import Command, Exporter, Plugin
from clotho.plugin_settings import PluginSettings, RunPluginSettings
from clotho.rollouts.run import RunManifest
from clotho.runs.disturbances import Disturbance, disturbances_of
from clotho.tools.results import answer
from clotho.tools.schemas import object_schema
from clotho.tools.tool import Arguments, CallContext, Tool, ToolOutcome, ToolSettings

PLUGIN = Plugin(
    "rewards",
    commands=(Command("best", "clotho_rewards:best", "Show the best rollouts of RUN."),),
    exporters={"rewards": Exporter("clotho_rewards:write_rewards", "a line for each rollout and its reward")},
    doctor={"machine": "clotho_rewards:examine"},
    settings="clotho_rewards:RewardSettings",
    tools=("clotho_rewards:ScoringRule",),
    run_settings="clotho_rewards:RunRewards",
)


class RewardSettings(PluginSettings):
    """How rewards are shown."""

    plugin: ClassVar[str] = "rewards"
    shown: int = 3
    """Rollouts that `clotho best` shows."""


class RunRewards(RunPluginSettings):
    """What rollouts of a run are told of their rewards."""

    plugin: ClassVar[str] = "rewards"
    rule: Annotated[str, Field(min_length=1)]
    """What `scoring_rule` answers."""


class ScoringRule(Tool):
    name = "scoring_rule"
    toolset = "rewards"
    sandboxed = False
    changes_workspace = False
    description = "Read how the work on the task is scored."
    parameters = object_schema()

    def missing(self, settings: ToolSettings) -> str | None:
        return None if settings.of(RunRewards) else "the run names no rule: set rewards.rule"

    async def run(self, arguments: Arguments, context: CallContext) -> ToolOutcome:
        rewards = context.settings.of(RunRewards)
        assert rewards is not None, "a tool was offered that is missing"
        return answer(rule=rewards.rule)


async def write_rewards(
    journal: Journal, manifest: RunManifest, figures: Figures, output: Path, exclude: Collection[Disturbance]
) -> int:
    """Write `rollout reward` lines, without rollouts that were disturbed in a way to exclude."""
    results = await read_results(journal, manifest.run)
    lines = [
        f"{each.rollout} {each.score:g}\n"
        for group in results.groups
        for each in group.siblings
        if not set(disturbances_of(each, group.repairs)) & set(exclude)
    ]
    await asyncio.to_thread(output.write_text, "".join(lines))
    return len(lines)


def best(run: str, store: Store = None) -> None:
    """Show the best rollouts of RUN."""
    settings = load_settings(store)

    async def show() -> None:
        results = await read_results(await existing_journal(settings), run)
        ranked = sorted(
            (each for group in results.groups for each in group.siblings), key=lambda each: -each.score
        )
        for each in ranked[: settings.of(RewardSettings).shown]:
            typer.echo(f"{each.rollout} {each.score:g}")

    asyncio.run(show())


async def examine(examination: Examination) -> list[Finding]:
    shown = examination.settings.of(RewardSettings).shown
    return [Finding(f"clotho best: {shown} rollouts", None if shown > 0 else "set plugins.rewards.shown")]
