"""Names of runs, groups and rollouts, and the journal keys computed from them.

No identifier comes from a clock or a random source: a restarted step computes the name it had before.
"""

import hashlib
import re

from clotho.errors import InvalidInput

RUN_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,63}")
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


def rollout_id(group: str, sibling: int) -> str:
    return f"{group}/r{sibling}"


def replacement_id(rollout: str, number: int) -> str:
    """What stands in for a sibling that can't go on: `group/r3.1` for `group/r3`, then `group/r3.2`."""
    return f"{original_of(rollout)}.{number}"


def original_of(rollout: str) -> str:
    """The sibling that `rollout` is, or stands in for."""
    return rollout.partition(".")[0]


def sibling_number(rollout: str) -> int:
    """Its place within its group."""
    return int(original_of(rollout).rpartition("/r")[2])


def call_id(turn: int, index: int) -> str:
    return f"{turn:04}-{index:02}"


RUNS = "~runs/"
"""Where the manifests of all runs are: no run's name starts with a tilde."""


def manifest_key(run: str) -> str:
    return f"{RUNS}{run}"


def endpoint_prefix(run: str) -> str:
    return f"{run}/~endpoint/"


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


def items_key(run: str, chunk: int) -> str:
    return f"{run}/~items/{chunk:06}"


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
