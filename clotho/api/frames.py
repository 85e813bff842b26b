"""Rollouts and turns as rows, for pandas and polars."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from clotho.errors import InvalidInput

if TYPE_CHECKING:
    import pandas
    import polars

    from clotho.api.handle import Rollout

Row = dict[str, Any]


def rollout_rows(rollouts: Iterable[Rollout]) -> Iterator[Row]:
    for rollout in rollouts:
        summary = rollout.summary
        yield {
            "rollout": rollout.id,
            "group": rollout.id.rpartition("/")[0],
            "item": rollout.item,
            "reward": rollout.reward,
            "outcome": rollout.outcome,
            "turns": summary.turns,
            "tool_calls": summary.tool_calls,
            "tool_errors": summary.tool_errors,
            "prompt_tokens": summary.prompt_tokens,
            "sampled_tokens": summary.sampled_tokens,
            "active_seconds": summary.active_seconds,
            "disturbances": list(rollout.disturbances),
        }


def turn_rows(rollouts: Iterable[Rollout]) -> Iterator[Row]:
    """A row for each turn that the model answered; a turn that overflowed the context has nothing to show."""
    for rollout in rollouts:
        for number, step in enumerate(rollout.transcript.steps):
            if (sampled := step.turn.sampled) is None:
                continue
            yield {
                "rollout": rollout.id,
                "turn": number,
                "content": sampled.message.content if isinstance(sampled.message.content, str) else None,
                "reasoning": sampled.message.reasoning_content,
                "tools": [call.function.name for call in step.turn.tool_calls],
                "tool_errors": sum(call.error is not None for call in step.calls),
                "prompt_tokens": sampled.usage.prompt_tokens,
                "sampled_tokens": sampled.usage.completion_tokens,
                "seconds": sampled.seconds,
                "tool_seconds": sum(call.seconds for call in step.calls),
                "finish_reason": sampled.finish_reason,
            }


def pandas_frame(rows: Iterable[Row]) -> pandas.DataFrame:
    frame: pandas.DataFrame = _package("pandas").DataFrame(list(rows))
    return frame


def polars_frame(rows: Iterable[Row]) -> polars.DataFrame:
    # by default polars takes the types of the first 100 rows, and fails on others later
    frame: polars.DataFrame = _package("polars").DataFrame(list(rows), infer_schema_length=None)
    return frame


def any_frame(rows: Iterable[Row]) -> pandas.DataFrame | polars.DataFrame:
    if find_spec("pandas") is None and find_spec("polars") is not None:
        return polars_frame(rows)
    return pandas_frame(rows)


def _package(name: str) -> Any:
    try:
        return import_module(name)
    except ImportError as error:
        raise InvalidInput(f"tables need {name}: pip install {name}") from error
