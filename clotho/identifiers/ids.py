"""Names and workflow ids of runs, groups, rollouts and calls."""

import hashlib
import json
import re
from collections.abc import Callable, Mapping

from pydantic import JsonValue

from clotho.errors import InvalidInput

RUN_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,63}")
ITEM_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}", re.ASCII)
TOOL_NAME_CHARACTERS = 64


def below(ending: str) -> Callable[[str], str]:
    """The key, or the prefix of keys, with this ending below a run, group or rollout."""
    return lambda owner: f"{owner}/{ending}"


def checked_run_name(name: str) -> str:
    """Return `name` if it may become part of workflow ids and store keys; else raise InvalidInput."""
    if RUN_NAME.fullmatch(name) is None:
        raise InvalidInput(
            f"run name {name!r}: use 1 to 64 of a-z, 0-9 and -, starting with a letter or digit"
        )
    return name


campaign_id = below("~campaign")


def group_id(run: str, item: int) -> str:
    return f"{run}/g{item:06}"


def item_name(item: Mapping[str, JsonValue]) -> str:
    """The item's name in ids: its `id` if that is fit for it, else a hash of its content."""
    name = str(item.get("id", ""))
    if ITEM_NAME.fullmatch(name):
        return f"i-{name}"
    canonical = json.dumps(item, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return f"h-{hashlib.sha256(canonical.encode()).hexdigest()[:32]}"


def adapter_group_id(run: str, name: str, occurrence: int) -> str:
    """The group that rolls an item out for the `occurrence`-th time, counted from 0."""
    return f"{run}/{name}.{occurrence}"


ADAPTER_GROUP = r"(?:i-[A-Za-z0-9_-]{1,64}|h-[0-9a-f]{32})\.\d+"
"""The names, within their run, that `adapter_group_id` gives."""


def branch_group_id(group: str, branch_group: int) -> str:
    """The name under which a group's branch group number `branch_group` is delivered."""
    return f"{group}~b{branch_group}" if branch_group else group


def rollout_id(group: str, sibling: int) -> str:
    return f"{group}/r{sibling}"


def replacement_id(rollout: str, number: int) -> str:
    """The id of a sibling's replacement: `group/r3.1` for `group/r3`, then `group/r3.2`."""
    return f"{original_of(rollout)}.{number}"


def is_rollout(workflow: str) -> bool:
    """Whether a workflow's id is a rollout's, rather than that of a group."""
    return workflow.count("/") == 2


def original_of(rollout: str) -> str:
    """The sibling that `rollout` is or replaces."""
    group, slash, name = rollout.rpartition("/")
    return f"{group}{slash}{name.partition('.')[0]}"


def sibling_number(rollout: str) -> int:
    """The rollout's number within its group."""
    return int(original_of(rollout).rpartition("/r")[2])


def call_id(turn: int, index: int) -> str:
    return f"{turn:04}-{index:02}"


def call_order(call: str) -> tuple[int, int]:
    """Sort key of calls, in the order in which they were made; no call sorts before all.

    As text, `0003-100` would come before `0003-99`.
    """
    turn, _, index = call.partition("-")
    return (int(turn), int(index)) if call else (-1, -1)


def group_of(rollout: str) -> str:
    return rollout.rpartition("/")[0]


def run_of(rollout: str) -> str:
    return rollout.partition("/")[0]


def displayable(name: str, limit: int = TOOL_NAME_CHARACTERS) -> str:
    """`name`, which a model invented, escaped and cut for histories, summaries and logs."""
    clean = "".join(c if c.isprintable() else "�" for c in name)
    return clean if len(clean) <= limit else clean[: limit - 1] + "…"
