"""Journal keys of a group."""

from clotho.identifiers.run_keys import repairs_prefix


def group_repairs_prefix(group: str) -> str:
    run, _, name = group.partition("/")
    return f"{repairs_prefix(run)}{name}/"


def attempt_prefix(group: str) -> str:
    return f"{group}/attempt/"


def sending_prefix(group: str) -> str:
    return f"{group}/sending/"


def delivered_key(group: str) -> str:
    return f"{group}/delivered"


def tools_key(group: str) -> str:
    return f"{group}/tools"


def scored_key(group: str) -> str:
    return f"{group}/scored"
