"""Names and workflow ids of runs, groups, rollouts and calls; seeds and job keys that derive from names."""

import hashlib
import json
import re
from collections.abc import Callable, Mapping

from pydantic import JsonValue

from clotho.errors import InvalidInput

RUN_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,63}")
ITEM_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}", re.ASCII)
BEGAN = "~"
"""Between a rollout and its call, in the name of the rollout that the call began."""


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
    # the prefixes keep an `id` that looks like a hash apart from hashes
    name = str(item.get("id", ""))
    if ITEM_NAME.fullmatch(name):
        return f"i-{name}"
    # sorted and without spaces: equal items have one name however they were written
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


def ids_in(workflow: str) -> dict[str, str]:
    """The ids of run, group and rollout that a workflow's id names; empty for what is no such id."""
    run, *below = workflow.split("/")
    if RUN_NAME.fullmatch(run) is None or len(below) > 2:
        return {}
    ids = {"run": run}
    # what begins with a tilde is the run's own, such as its campaign
    if below and not below[0].startswith("~"):
        ids |= {"group": f"{run}/{below[0]}"} | ({"rollout": workflow} if below[1:] else {})
    return ids


def is_rollout(workflow: str) -> bool:
    """Whether a workflow's id is a rollout's, rather than that of a group."""
    return workflow.count("/") == 2


def original_of(rollout: str) -> str:
    """The sibling that `rollout` is or replaces. A child is its own: it is replaced only with its parent."""
    group, slash, name = rollout.rpartition("/")
    return rollout if BEGAN in name else f"{group}{slash}{name.partition('.')[0]}"


def sibling_number(rollout: str) -> int:
    """The number of the sibling that the rollout is, or from which its task comes."""
    return int(original_of(sibling_of(rollout)).rpartition("/r")[2])


def child_id(rollout: str, call: str) -> str:
    """The rollout that does the task which a call of `rollout` delegates: `group/r3~0004-00`."""
    return f"{rollout}{BEGAN}{call}"


def sibling_of(rollout: str) -> str:
    """The rollout of the group that is `rollout`, or from which its task comes."""
    group, slash, name = rollout.rpartition("/")
    return f"{group}{slash}{name.partition(BEGAN)[0]}"


def depth_of(rollout: str) -> int:
    """How often the rollout's task was delegated: 0 for a sibling."""
    return rollout.rpartition("/")[2].count(BEGAN)


def wholes_of(name: str) -> tuple[str, ...]:
    """Ids from a run, group, rollout or campaign up to its run: its own first, the run last.

    A replacement counts as the sibling that it replaces. A child is part of the rollout that delegated its task.
    """
    if not is_rollout(name):
        return (name, run_of(name)) if "/" in name else (name,)
    group, _, last = name.rpartition("/")
    calls = last.split(BEGAN)
    rollouts = (f"{group}/{BEGAN.join(calls[:end])}" for end in range(len(calls), 0, -1))
    return (*map(original_of, rollouts), group, run_of(name))


def call_id(turn: int, index: int) -> str:
    return f"{turn:04}-{index:02}"


def place_of(owner: str, rollout: str, call: str) -> str:
    """A call's place in the sandbox of `owner`: the call, after those that delegated its rollout's task."""
    return f"{rollout.removeprefix(owner)}{BEGAN}{call}".removeprefix(BEGAN)


def caller_at(owner: str, place: str) -> tuple[str, str]:
    """The rollout whose call is at a place in the sandbox of `owner`, and the call."""
    began, _, call = place.rpartition(BEGAN)
    return (child_id(owner, began) if began else owner), call


def call_order(place: str) -> tuple[tuple[int, int], ...]:
    """Sort key of calls in a sandbox, in the order in which they were made; no call sorts before all.

    As text, `0003-100` would come before `0003-99`.
    """
    pairs = (call.partition("-") for call in place.split(BEGAN) if call)
    return tuple((int(turn), int(index)) for turn, _, index in pairs)


def group_of(rollout: str) -> str:
    return rollout.rpartition("/")[0]


def run_of(rollout: str) -> str:
    return rollout.partition("/")[0]


def derived_seed(*parts: str | int) -> int:
    """A 63-bit seed that depends on nothing but `parts`.

    A rollout's seed derives from the run's seed and its id (`activities/groups.py`), a turn's from the rollout's
    and the turn's number (`activities/sampling.py`), that of an interrupted turn's rest from the turn's and the
    offset (`clotho/models/token_exact.py`): repeating a seed would repeat its random numbers.
    """
    # no id holds a NUL: ('a', 'bc') and ('ab', 'c') have different seeds
    digest = hashlib.sha256("\0".join(map(str, parts)).encode()).digest()
    # 63 bits fit into a signed integer of 64
    return int.from_bytes(digest[:8], "big") >> 1


def job_key(*parts: str | int) -> str:
    """32 hexadecimal digits that stand for `parts`: the key of a job in a sandbox, or of a sequence of claims."""
    return hashlib.sha256("\0".join(map(str, parts)).encode()).hexdigest()[:32]
