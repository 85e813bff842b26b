"""Facts of recorded rollouts that every exchange format has a place for."""

import json
import math
from collections.abc import Mapping
from datetime import UTC, datetime

from pydantic import JsonValue

from clotho.identifiers.ids import item_name, sibling_number
from clotho.models.backend import SampledTurn, Usage
from clotho.rollouts.item import Item
from clotho.rollouts.rollout import RolloutSummary
from clotho.rollouts.transcript import Transcript
from clotho.runs.export import RecordedRollout

UNPARSED = "unparsed"
"""The name under which a call's arguments are given that aren't a JSON object."""


def sampled_turns(transcript: Transcript) -> list[SampledTurn]:
    return [step.turn.sampled for step in transcript.steps if step.turn.sampled is not None]


def usage_of(transcript: Transcript) -> Usage:
    """Tokens of all turns together."""
    each = [turn.usage for turn in sampled_turns(transcript)]
    return Usage(
        prompt_tokens=sum(one.prompt_tokens for one in each),
        completion_tokens=sum(one.completion_tokens for one in each),
        cached_prompt_tokens=sum(one.cached_prompt_tokens for one in each),
    )


def span_of(transcript: Transcript) -> tuple[float, float] | None:
    """The beginning of the first turn and the end of the last turn or call, Unix time; None without turns."""
    turns = sampled_turns(transcript)
    ends = [turn.started + turn.seconds for turn in turns]
    ends += [call.started + call.seconds for step in transcript.steps for call in step.calls]
    return (turns[0].started, max(ends)) if turns else None


def at(seconds: float) -> str:
    """A Unix time as text."""
    return datetime.fromtimestamp(seconds, UTC).isoformat()


def parsed_arguments(arguments: str) -> tuple[dict[str, JsonValue], str | None]:
    """A call's arguments, or else the text under the name UNPARSED and why."""
    try:
        parsed = json.loads(arguments)
    except (ValueError, RecursionError) as error:
        return {UNPARSED: arguments}, str(error)
    return (parsed, None) if isinstance(parsed, dict) else ({UNPARSED: arguments}, "not a JSON object")


def facts_of(read: RecordedRollout) -> dict[str, JsonValue]:
    """A rollout's figures beside its conversation."""
    summary, reward = read.summary, read.reward
    return {
        "rollout": summary.rollout,
        "outcome": str(summary.ending.outcome),
        "limit": summary.ending.limit,
        "disturbances": [str(kind) for kind in read.disturbances],
        "replacement_of": summary.replacement_of,
        "reward_breakdown": finite(reward.breakdown),
        "reward_error": reward.error,
        "turns": summary.turns,
        "tool_errors": summary.tool_errors,
    }


def epoch_of(summary: RolloutSummary) -> int:
    """The number of a rollout among those of its item, counted from 1."""
    return sibling_number(summary.rollout) + 1


def sample_name(group: str, item: Item) -> str:
    """A group's number, after the item's `id` where that is fit for a name: an item may be in a run twice."""
    name, number = item_name(item), group.rpartition("/")[2]
    return f"{name.removeprefix('i-')}-{number}" if name.startswith("i-") else number


def finite(breakdown: Mapping[str, float]) -> dict[str, JsonValue]:
    """The parts of a reward that are numbers in JSON."""
    return {name: value for name, value in breakdown.items() if math.isfinite(value)}
