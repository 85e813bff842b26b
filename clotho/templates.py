"""Environment variables of sandboxes: `${VAR}` and `${VAR:-default}`, taken from the workers' own."""

import re
from collections.abc import Callable, Collection, Mapping

from clotho.errors import InvalidInput

TEMPLATE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-(.*))?\}", re.DOTALL)
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

Lookup = Callable[[str], str | None]


def resolved(
    values: Mapping[str, str], where: str, variable: Lookup, readable: Collection[str] | None = None
) -> dict[str, str]:
    """`values`, with each that is a template as a whole replaced; all others are literal.

    `readable` names the variables that may be taken (None: any). A default is used where the variable isn't set or
    not readable, not where it is empty. Raises InvalidInput for a variable that is missing and has no default,
    and for a name that no variable can have.
    """
    found = {}
    for name, value in values.items():
        if NAME.fullmatch(name) is None:
            raise InvalidInput(f"{where}: {name!r} is no name of an environment variable")
        found[name] = _resolved(value, f"{where}.{name}", variable, readable)
    return found


def _resolved(value: str, where: str, variable: Lookup, readable: Collection[str] | None) -> str:
    if (template := TEMPLATE.fullmatch(value)) is None:
        return value
    name, default = template[1], template[2]
    may_read = readable is None or name in readable
    if may_read and (given := variable(name)) is not None:
        return given
    if default is None:
        if not may_read:
            raise InvalidInput(
                f"{where}: environment variable {name} is not among the `variables` that tasks may read, "
                "and has no default"
            )
        raise InvalidInput(f"{where}: environment variable {name} is not set, and has no default")
    return default
