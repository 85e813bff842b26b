"""Runs as a store has them, written by hand: for what no short run comes to."""

from collections.abc import Sequence

from clotho.identifiers.ids import group_id, rollout_id
from clotho.identifiers.keys import scored_key
from clotho.journal import Journal
from clotho.rollouts.group import GroupEntry
from clotho.rollouts.outcome import Ending, Outcome
from clotho.rollouts.rollout import RolloutSummary
from clotho.runs.items import write_items
from clotho.runs.manifest import open_run
from clotho.runs.request import run_manifest


async def write_run(journal: Journal, run: str, items: int) -> None:
    """A run that has begun, without a scored group."""
    manifest = run_manifest("tests.environments.one_file:OneFile", run, "scripted", group_size=2)
    await open_run(journal, manifest, None)
    await write_items(journal, run, [{"id": f"item-{number}"} for number in range(items)])


def group_entry(group: str, scores: Sequence[float], seconds: float = 1.5) -> GroupEntry:
    siblings = tuple(
        RolloutSummary(
            rollout=rollout_id(group, number),
            ending=Ending(outcome=Outcome.COMPLETED),
            score=score,
            turns=2 + number,
            sampled_tokens=100 * (number + 1),
            active_seconds=seconds,
        )
        for number, score in enumerate(scores)
    )
    number = int(group.rpartition("/g")[2])
    return GroupEntry(item={"id": f"item-{number}"}, toolsets=(), siblings=siblings)


async def write_group(journal: Journal, run: str, item: int, *scores: float, seconds: float = 1.5) -> None:
    group = group_id(run, item)
    await journal.write(scored_key(group), group_entry(group, scores, seconds))
