"""An author's `collect_trajectory`: every rollout's row passes through it on its way into its group."""

import asyncio
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from typing import Any

from clotho.errors import InvalidInput

PER_ROW = (
    "tokens",
    "masks",
    "scores",
    "advantages",
    "ref_logprobs",
    "inference_logprobs",
    "messages",
    "overrides",
    "images",
)
"""The fields of a ScoredDataGroup that hold one value for each row: a row has them by the same names."""

Row = dict[str, Any]
Hook = Callable[[Any], Awaitable[tuple[Row | None, list[Any]]]]

_current: ContextVar[Row] = ContextVar("row")


def current_row() -> Row:
    """The row that a hook was called for. Raises InvalidInput outside of such a call."""
    try:
        return _current.get()
    except LookupError:
        raise InvalidInput(
            "collect_trajectory has no rollout to return: it is called for the rows of finished groups; "
            "HermesAgentLoop runs manual rollouts"
        ) from None


async def rows_through(
    hook: Hook, groups: dict[str, Any] | list[dict[str, Any]], item: Any
) -> tuple[Any, list[Any]]:
    """The branch groups as `hook` changes them, and the items that it adds to the backlog.

    The hook sees every rollout once, in its row of the first branch group; its scores count in all of them. None
    for one row withholds the group.
    """
    first, *others = groups if isinstance(groups, list) else [groups]
    results = await asyncio.gather(*(_through(hook, row, item) for row in _rows(first)))
    further = [each for _, more in results for each in more]
    rows = [row for row, _ in results if row is not None]
    if len(rows) < len(results):
        return None, further
    first |= {name: [row[name] for row in rows] for name in PER_ROW if name in rows[0]}
    for branch_group in others:
        branch_group["scores"] = list(first["scores"])
    return ([first, *others] if others else first), further


def _rows(group: dict[str, Any]) -> list[Row]:
    given = [name for name in PER_ROW if group.get(name) is not None]
    return [
        dict(zip(given, values, strict=True)) for values in zip(*(group[name] for name in given), strict=True)
    ]


async def _through(hook: Hook, row: Row, item: Any) -> tuple[Row | None, list[Any]]:
    _current.set(row)
    return await hook(item)
