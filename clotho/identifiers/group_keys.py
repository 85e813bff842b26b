"""Journal keys of a group, and prefixes of those that are numbered."""

from clotho.identifiers.ids import below
from clotho.identifiers.run_keys import repairs_prefix

tools_key = below("tools")
attempt_prefix = below("attempt/")
scored_key = below("scored")
sending_prefix = below("sending/")
delivered_key = below("delivered")


def group_repairs_prefix(group: str) -> str:
    run, _, name = group.partition("/")
    return f"{repairs_prefix(run)}{name}/"
