"""Rows of a run's index: what its pages list, sort and sum up, without reading a rollout."""

import json
from collections.abc import Sequence
from itertools import chain
from math import sqrt
from statistics import fmean
from typing import Any, NamedTuple

from clotho.identifiers.ids import item_name
from clotho.rollouts.group import GroupEntry
from clotho.rollouts.item import Item
from clotho.rollouts.rollout import RolloutSummary
from clotho.runs.disturbances import disturbances_of

LABEL_CHARACTERS = 80
NAMES = ("id", "name", "task", "prompt", "question", "instruction")
"""Fields of items that tell them from others, the best first."""


class RolloutRow(NamedTuple):
    """A scored rollout."""

    name: str
    """Its id within its group."""
    score: float
    turns: int
    tool_calls: int
    tool_errors: int
    tokens: int
    """Sampled tokens."""
    seconds: float
    """Seconds of active work."""
    outcome: str
    disturbances: tuple[str, ...]


class GroupRow(NamedTuple):
    """A scored group."""

    group: str
    item: str
    """Its item's name, which tells items apart as `clotho eval compare` does."""
    label: str
    """The beginning of its item."""
    rollouts: tuple[RolloutRow, ...]
    failures: tuple[str, ...]
    """The kind of each failure that was repaired."""
    spent: tuple[int, int, int]
    """Tokens of prompts, cached ones among them, and sampled tokens, of all that the group took."""
    ended: float | None
    """Unix time at which it was scored."""

    @property
    def name(self) -> str:
        return self.group.partition("/")[2]

    @property
    def scores(self) -> list[float]:
        return [each.score for each in self.rollouts]

    @property
    def mean(self) -> float:
        return fmean(self.scores) if self.rollouts else 0.0

    @property
    def spread(self) -> float:
        """The standard deviation of the rewards: where it is 0, the group says nothing about which is better."""
        return deviation(self.scores)

    @property
    def turns(self) -> float:
        return fmean([each.turns for each in self.rollouts]) if self.rollouts else 0.0

    @property
    def tokens(self) -> int:
        return sum(each.tokens for each in self.rollouts)

    @property
    def seconds(self) -> float:
        return max((each.seconds for each in self.rollouts), default=0.0)

    @property
    def disturbances(self) -> list[str]:
        return list(dict.fromkeys(chain.from_iterable(each.disturbances for each in self.rollouts)))


def deviation(values: Sequence[float]) -> float:
    """The standard deviation of all of them; that of `statistics` takes fifty times as long."""
    if not values or min(values) == max(values):
        return 0.0
    mean = fmean(values)
    return sqrt(fmean([(value - mean) ** 2 for value in values]))


def group_row(group: str, entry: GroupEntry) -> GroupRow:
    rollouts = tuple(_rollout_row(each, entry) for each in entry.siblings)
    failures = tuple(repair.failure.kind for repair in entry.repairs)
    item, spent = entry.item, _spent(entry)
    return GroupRow(group, item_name(item), label_of(item), rollouts, failures, spent, entry.ended)


def row_from(stored: Sequence[Any]) -> GroupRow:
    """The row that was written as JSON lists."""
    group, item, label, rollouts, failures, spent, ended = stored
    rows = tuple(RolloutRow._make([*values, tuple(disturbed)]) for *values, disturbed in rollouts)
    prompt, cached, sampled = spent
    return GroupRow(group, item, label, rows, tuple(failures), (prompt, cached, sampled), ended)


def label_of(item: Item) -> str:
    """A short text that tells the item from others."""
    named = next((item[name] for name in NAMES if isinstance(item.get(name), str)), None)
    text = str(named) if named else json.dumps(item, ensure_ascii=False)
    return text if len(text) <= LABEL_CHARACTERS else f"{text[: LABEL_CHARACTERS - 1]}…"


def _spent(entry: GroupEntry) -> tuple[int, int, int]:
    if (spent := entry.spent) is not None:
        return spent.prompt_tokens, spent.cached_prompt_tokens, spent.sampled_tokens
    # A run that had no budget or prices when this group was scored: of its siblings alone, nothing taken as cached.
    prompt = sum(each.prompt_tokens + each.delegated_prompt_tokens for each in entry.siblings)
    return prompt, 0, sum(each.sampled_tokens + each.delegated_tokens for each in entry.siblings)


def _rollout_row(summary: RolloutSummary, entry: GroupEntry) -> RolloutRow:
    ending = summary.ending
    return RolloutRow(
        name=summary.rollout.rpartition("/")[2],
        score=summary.score,
        turns=summary.turns,
        tool_calls=summary.tool_calls,
        tool_errors=summary.tool_errors,
        tokens=summary.sampled_tokens,
        seconds=summary.active_seconds,
        outcome=f"{ending.outcome}({ending.limit})" if ending.limit else str(ending.outcome),
        disturbances=tuple(map(str, disturbances_of(summary, entry.repairs))),
    )
