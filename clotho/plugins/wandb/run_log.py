"""`clotho run --wandb PROJECT`: a run's progress, rewards, outcomes and some transcripts in Weights & Biases."""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from clotho.cli.progress import View
from clotho.errors import InvalidInput
from clotho.identifiers.ids import item_name, job_key
from clotho.journal import Journal
from clotho.plugins.atropos.wandb_table import conversation
from clotho.rollouts.group import GroupEntry
from clotho.rollouts.rollout import RolloutSummary, Work
from clotho.rollouts.run import RunManifest
from clotho.rollouts.transcript import read_transcript
from clotho.runs.groups import group_ids, scored_among

if TYPE_CHECKING:
    from wandb import Run

PERIOD_SECONDS = 5.0
TRANSCRIPTS = 20
"""Rollouts whose transcripts are logged, spread evenly over the run."""
GROUPS = 10_000
"""Most groups whose rewards and outcomes are logged."""

Pair = tuple[GroupEntry, RolloutSummary]


@dataclass
class WandbLog:
    """Logs a run's sums now and then: those of the whole run, also where others followed it before."""

    run: "Run"
    _logged: dict[str, float] = field(default_factory=dict)
    _next: float = 0.0

    @property
    def address(self) -> str | None:
        return None if self.run.url is None else f"wandb: {self.run.url}"

    def show(self, view: View) -> None:
        """Log the sums, if they have changed since they were logged, and that was not just now."""
        now, sums = time.monotonic(), sums_of(view)
        if now >= self._next and sums and sums != self._logged:
            self.run.log(sums)
            self._logged, self._next = sums, now + PERIOD_SECONDS

    async def conclude(self, journal: Journal, run: str) -> None:
        """Log rewards, outcomes and transcripts of the scored groups."""
        import wandb

        work, outcomes = Work(), Counter[str]()
        kept: list[tuple[str, GroupEntry]] = []
        async for group, entry in scored_among(journal, await group_ids(journal, run)):
            work = work.with_ends(entry.siblings)
            outcomes.update(str(sibling.ending.outcome) for sibling in entry.siblings)
            if len(kept) < GROUPS:
                kept.append((group, entry))
        if not work.rollouts:
            return
        siblings = [(entry, sibling) for _, entry in kept for sibling in entry.siblings]
        by_group = [(group, *_spread(entry)) for group, entry in kept]
        rows = [await _row(journal, entry, sibling) for entry, sibling in _spaced(siblings)]
        self.run.log(
            {
                **sums_of_work(work),
                **{f"outcomes/{outcome}": count for outcome, count in outcomes.items()},
                "reward/histogram": wandb.Histogram([sibling.score for _, sibling in siblings]),
                "groups/rewards": wandb.Table(["group", "mean", "lowest", "highest"], by_group),
                "transcripts": wandb.Table(["rollout", "item", "reward", "outcome", "turns", "text"], rows),
            }
        )


@asynccontextmanager
async def wandb_log(project: str, journal: Journal, manifest: RunManifest) -> AsyncIterator[WandbLog]:
    """The wandb run of `manifest`'s run, which goes on where the run was followed before; whole at the end.

    Raises InvalidInput where wandb refuses.
    """
    import wandb

    # its own progress lines would mix with those of the run
    settings = wandb.Settings(console="off", silent=True)
    try:
        run = await asyncio.to_thread(
            wandb.init,
            project=project,
            id=wandb_id(journal, manifest.run),
            name=manifest.run,
            resume="allow",
            config=manifest.model_dump(mode="json"),
            settings=settings,
        )
    except wandb.errors.Error as error:
        raise InvalidInput(
            f"--wandb: {error}; the run goes on without: follow it with the same command, or log with "
            "WANDB_MODE=offline"
        ) from error
    try:
        yield WandbLog(run)
    finally:
        # it waits until all is uploaded
        await asyncio.to_thread(run.finish)


def wandb_id(journal: Journal, run: str) -> str:
    """The id of a run's wandb run. It is the same whoever follows the run: wandb adds to what it has."""
    return f"{run}-{job_key(journal.store_identity, run)[:8]}"


def sums_of(view: View) -> dict[str, float]:
    """The metrics of a view; empty before a worker answers."""
    if (progress := view.progress) is None:
        return {}
    sums: dict[str, float] = {
        "groups/scored": progress.scored + progress.skipped,
        "groups/running": progress.running,
        "groups/failed": progress.failed,
        **sums_of_work(view.totals),
    }
    if view.counts is not None:
        sums |= {"rollouts/failed": len(view.counts.failed), "rollouts/paused": view.counts.paused}
    return sums


def sums_of_work(work: Work) -> dict[str, float]:
    mean = {"reward/mean": work.reward_sum / work.rollouts} if work.rollouts else {}
    return {
        "rollouts/scored": work.rollouts,
        "turns": work.turns,
        "tool_calls": work.tool_calls,
        "tokens/sampled": work.sampled_tokens,
        **mean,
    }


def _spread(entry: GroupEntry) -> tuple[float, float, float]:
    scores = [sibling.score for sibling in entry.siblings]
    return sum(scores) / len(scores), min(scores), max(scores)


def _spaced(siblings: list[Pair]) -> list[Pair]:
    step = max(1, len(siblings) // TRANSCRIPTS)
    return siblings[::step][:TRANSCRIPTS]


async def _row(
    journal: Journal, entry: GroupEntry, end: RolloutSummary
) -> tuple[str, str, float, str, int, str]:
    transcript = await read_transcript(journal, end.rollout, end.turns)
    text = conversation([message.wire() for message in transcript.messages])
    return end.rollout, item_name(entry.item), end.score, str(end.ending.outcome), end.turns, text
