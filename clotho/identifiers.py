"""Names of runs, groups and rollouts, and the journal keys computed from them.

No identifier comes from a clock or a random source: a restarted step computes the name it had before.
"""

import hashlib
import json
import re
from collections.abc import Mapping

from pydantic import JsonValue

from clotho.errors import InvalidInput

RUN_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,63}")
ITEM_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}", re.ASCII)
TOOL_NAME_LIMIT = 64


def checked_run_name(name: str) -> str:
    """Raises InvalidInput unless `name` may become part of workflow ids and store keys."""
    if RUN_NAME.fullmatch(name) is None:
        raise InvalidInput(
            f"run name {name!r}: use 1 to 64 of a-z, 0-9 and -, starting with a letter or digit"
        )
    return name


def campaign_id(run: str) -> str:
    return f"{run}/~campaign"


def group_id(run: str, item: int) -> str:
    return f"{run}/g{item:06}"


def item_name(item: Mapping[str, JsonValue]) -> str:
    """What an item is called in ids: by its `id` where that is fit for it, else by its content."""
    name = str(item.get("id", ""))
    if ITEM_NAME.fullmatch(name):
        return f"i-{name}"
    canonical = json.dumps(item, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return f"h-{hashlib.sha256(canonical.encode()).hexdigest()[:32]}"


def drawn_group_id(run: str, name: str, occurrence: int) -> str:
    """The group that rolls an item out for the `occurrence`-th time, counted from 0."""
    return f"{run}/{name}.{occurrence}"


DRAWN_GROUP = r"(?:i-[A-Za-z0-9_-]{1,64}|h-[0-9a-f]{32})\.\d+"
"""The names, within their run, that `drawn_group_id` gives."""


def wave_id(group: str, wave: int) -> str:
    """The name of a group's rows number `wave`, as they are delivered."""
    return f"{group}~w{wave}" if wave else group


def rollout_id(group: str, sibling: int) -> str:
    return f"{group}/r{sibling}"


def replacement_id(rollout: str, number: int) -> str:
    """What stands in for a sibling that can't go on: `group/r3.1` for `group/r3`, then `group/r3.2`."""
    return f"{original_of(rollout)}.{number}"


def is_rollout(workflow: str) -> bool:
    """Whether a workflow's id is a rollout's, rather than that of a group."""
    return workflow.count("/") == 2


def original_of(rollout: str) -> str:
    """The sibling that `rollout` is, or stands in for."""
    group, slash, name = rollout.rpartition("/")
    return f"{group}{slash}{name.partition('.')[0]}"


def sibling_number(rollout: str) -> int:
    """Its place within its group."""
    return int(original_of(rollout).rpartition("/r")[2])


def call_id(turn: int, index: int) -> str:
    return f"{turn:04}-{index:02}"


def call_order(call: str) -> tuple[int, int]:
    """By which calls are in the order in which they were made; no call at all is before every one.

    As text, `0003-100` would come before `0003-99`.
    """
    turn, _, index = call.partition("-")
    return (int(turn), int(index)) if call else (-1, -1)


RUNS = "~runs/"
"""Where the manifests of all runs are: no run's name starts with a tilde."""


def manifest_key(run: str) -> str:
    return f"{RUNS}{run}"


DELETED = "~deleted/"
"""Where the marks of deleted runs are."""


def deleted_key(run: str) -> str:
    return f"{DELETED}{run}"


def endpoint_prefix(run: str) -> str:
    return f"{run}/~endpoint/"


def served_prefix(run: str) -> str:
    return f"{run}/~served/"


def order_prefix(run: str) -> str:
    return f"{run}/~order/"


def pause_prefix(run: str) -> str:
    return f"{run}/~pause/"


def repairs_prefix(run: str) -> str:
    return f"{run}/~repairs/"


def group_repairs_prefix(group: str) -> str:
    run, _, name = group.partition("/")
    return f"{repairs_prefix(run)}{name}/"


def attempt_prefix(group: str) -> str:
    return f"{group}/attempt/"


def items_prefix(run: str) -> str:
    return f"{run}/~items/"


def items_key(run: str, chunk: int) -> str:
    return f"{items_prefix(run)}{chunk:06}"


def drawn_prefix(run: str) -> str:
    """Items that were drawn one at a time, in the order in which they were."""
    return f"{run}/~drawn/"


def drawn_key(run: str, number: int) -> str:
    return f"{drawn_prefix(run)}{number:08}"


def drawn_order_prefix(run: str) -> str:
    return f"{run}/~drawn-order/"


def trainer_step_prefix(run: str) -> str:
    return f"{run}/~trainer-step/"


def registration_prefix(run: str) -> str:
    return f"{run}/~registration/"


def tenure_prefix(run: str) -> str:
    return f"{run}/~tenure/"


def sending_prefix(group: str) -> str:
    return f"{group}/sending/"


def delivered_key(group: str) -> str:
    return f"{group}/delivered"


def tools_key(group: str) -> str:
    return f"{group}/tools"


def scored_key(group: str) -> str:
    return f"{group}/scored"


def prompt_key(rollout: str) -> str:
    return f"{rollout}/prompt"


def turn_prefix(rollout: str) -> str:
    return f"{rollout}/turn/"


def turn_key(rollout: str, turn: int) -> str:
    return f"{turn_prefix(rollout)}{turn:04}"


def streams_prefix(rollout: str) -> str:
    return f"{rollout}/stream/"


def stream_prefix(turn: str) -> str:
    """Of the write-ahead of the turn at key `turn`."""
    rollout, _, number = turn.rpartition("/turn/")
    return f"{streams_prefix(rollout)}{number}/"


def call_key(rollout: str, call: str) -> str:
    return f"{rollout}/call/{call}"


def lease_key(rollout: str, number: int) -> str:
    return f"{rollout}/lease/{number}"


def final_key(rollout: str) -> str:
    """The checkpoint before verification."""
    return f"{rollout}/final"


def blob_key(rollout: str, digest: str) -> str:
    return f"{rollout}/checkpoint/{digest}"


def epoch_prefix(rollout: str) -> str:
    return f"{rollout}/epoch/"


def reward_key(rollout: str) -> str:
    return f"{rollout}/reward"


def end_key(rollout: str) -> str:
    return f"{rollout}/end"


def sealed_key(rollout: str) -> str:
    return f"{rollout}/sealed"


def group_of(rollout: str) -> str:
    return rollout.rpartition("/")[0]


def derived_seed(*parts: str | int) -> int:
    """A 63-bit seed that depends on nothing but `parts`."""
    digest = hashlib.sha256("\0".join(map(str, parts)).encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


def job_key(*parts: str | int) -> str:
    """The key under which a sandbox knows a command: 32 hexadecimal digits."""
    return hashlib.sha256("\0".join(map(str, parts)).encode()).hexdigest()[:32]


def displayable(name: str, limit: int = TOOL_NAME_LIMIT) -> str:
    """A name that a model invented, fit for histories, summaries and logs."""
    clean = "".join(c if c.isprintable() else "�" for c in name)
    return clean if len(clean) <= limit else clean[: limit - 1] + "…"
