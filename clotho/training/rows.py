"""The neutral row: a branch of a rollout and the rollout's reward, without an advantage.

Every trainer and exporter makes its own of these: all train on the same tokens, masks, logprobs and rewards.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import TypeVar

from clotho_client.rows import TrainingRow as TrainingRow

from clotho.errors import GroupRejected, JournalCorrupt, Rejection
from clotho.frozen_model import FrozenModel
from clotho.journal import Journal
from clotho.rollouts.group import GroupEntry
from clotho.rollouts.item import Item
from clotho.runs.groups import scored_groups
from clotho.training.fitness import (
    check_age,
    check_lengths,
    check_logprobs,
    check_sampled,
    check_whole,
    oldest_step,
)
from clotho.training.siblings import ALL, Exclusion, Sibling, read_siblings

Value = TypeVar("Value")


class TrainingGroup(FrozenModel):
    """A finished group. Each rollout has a row at least: one without tokens if there is nothing to train on."""

    group: str
    item: Item
    rows: tuple[TrainingRow, ...]


def training_group(
    group: str,
    entry: GroupEntry,
    siblings: Sequence[Sibling],
    *,
    size: int | None = None,
    max_tokens: int | None = None,
    exclusion: Exclusion = ALL,
) -> TrainingGroup:
    """The rows of a finished group. Raises GroupRejected for one that no trainer should see."""
    check_whole(group, siblings, len(siblings) if size is None else size)
    kept = exclusion.mask_excluded(group, siblings)
    rows = tuple(row for rows in rows_of(group, kept, max_tokens) for row in rows)
    return TrainingGroup(group=group, item=entry.item, rows=rows)


def rows_of(
    group: str, siblings: Sequence[Sibling], max_tokens: int | None = None
) -> tuple[tuple[TrainingRow, ...], ...]:
    """The rows of each rollout: one for each branch, or one without tokens. Raises GroupRejected."""
    check_sampled(group, siblings)
    rows = tuple(tuple(_rows(group, sibling)) for sibling in siblings)
    check_lengths(group, (len(row.ids) for several in rows for row in several), max_tokens)
    return rows


def check_staleness(group: TrainingGroup, step: int, bound: int | None) -> None:
    """Raise GroupRejected if the group's oldest token was sampled more than `bound` steps before `step`."""
    check_age(group.group, oldest_step(group.rows), step, bound)


async def training_groups(
    journal: Journal, run: str, *, exclusion: Exclusion = ALL
) -> AsyncIterator[TrainingGroup | GroupRejected]:
    """The run's finished groups, or why one can't be trained on."""
    for group, entry in await scored_groups(journal, run):
        try:
            siblings = await read_siblings(journal, entry)
            # in a thread: long groups would hold up the event loop
            yield await asyncio.to_thread(training_group, group, entry, siblings, exclusion=exclusion)
        except GroupRejected as rejected:
            yield rejected
        except JournalCorrupt as corrupt:
            # one damaged group mustn't end the export of the others
            yield GroupRejected(Rejection.CORRUPT, str(corrupt))


def _rows(group: str, sibling: Sibling) -> Iterator[TrainingRow]:
    summary = sibling.summary
    empty = TrainingRow(
        group=group,
        item=sibling.item,
        rollout=summary.rollout,
        branch=0,
        sampled_by=None,
        reward=summary.score,
        outcome=summary.ending.outcome,
        limit=summary.ending.limit,
        disturbances=sibling.disturbances,
        sandbox_losses=summary.losses,
        resumed_turns=summary.resumed_turns,
        repairs=len(sibling.repairs),
        replacement_of=summary.replacement_of,
        excluded=sibling.excluded,
    )
    if not sibling.branches:
        yield empty
    for number, branch in enumerate(sibling.branches):
        check_logprobs(branch)
        known = sum(span.end - span.start for span in branch.versions)
        yield empty.model_copy(
            update={
                "branch": number,
                "sampled_by": branch.rollout,
                "ids": branch.ids,
                "mask": branch.mask,
                # servers round to just above 0, which `check_logprobs` lets pass; trainers mustn't see it
                "logprobs": tuple(min(logprob, 0.0) for logprob in branch.logprobs),
                "logprobs_mode": _common([span.logprobs_mode for span in branch.spans]),
                "temperature": _common([span.sampling.temperature for span in branch.spans]),
                "versions": branch.versions,
                "versions_known": known == sum(branch.mask),
            }
        )


def _common(values: Sequence[Value]) -> Value | None:
    """The value that all have; None where they differ."""
    return values[0] if len(set(values)) == 1 else None
