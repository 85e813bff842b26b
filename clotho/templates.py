"""Environment variables of sandboxes: `${VAR}` and `${VAR:-default}`, taken from the workers' own."""

import re
from collections.abc import Callable, Mapping

from clotho.errors import InvalidInput

TEMPLATE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-(.*))?\}", re.DOTALL)
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

Lookup = Callable[[str], str | None]


def resolved(values: Mapping[str, str], where: str, variable: Lookup) -> dict[str, str]:
    """The values with those that are wholly a template replaced; all others are literal.

    A default is used where the variable isn't set, not where it is empty. Raises InvalidInput for one that is
    missing without a default, and for a name that isn't one.
    """
    found = {}
    for name, value in values.items():
        if NAME.fullmatch(name) is None:
            raise InvalidInput(f"{where}: {name!r} is no name of an environment variable")
        found[name] = _resolved(value, f"{where}.{name}", variable)
    return found


def _resolved(value: str, where: str, variable: Lookup) -> str:
    if (template := TEMPLATE.fullmatch(value)) is None:
        return value
    name, default = template[1], template[2]
    if (given := variable(name)) is not None:
        return given
    if default is None:
        raise InvalidInput(f"{where}: environment variable {name} is not set, and has no default")
    return default
