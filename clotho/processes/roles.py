"""Roles of worker processes, and which processes have them."""

from clotho.errors import InvalidInput

ROLES = ("workflows", "llm", "tools")
LAYOUT = (("llm",), ("workflows", "tools"))
"""Roles of each process by default."""


def process_layout(roles: str | None, processes: int | None) -> list[tuple[str, ...]]:
    """The roles of each process; raises InvalidInput for a number of processes without roles."""
    if roles is not None:
        return [_checked(roles)] * (processes or 1)
    if processes is not None:
        raise InvalidInput(
            f"--processes {processes} needs --roles, which says what these processes serve: run, for example, "
            f"`--roles workflows --processes {processes}` beside `--roles llm` and `--roles tools`"
        )
    return list(LAYOUT)


def _checked(text: str) -> tuple[str, ...]:
    roles = tuple(text.split(","))
    for role in roles:
        if role not in ROLES:
            raise InvalidInput(f"unknown role {role!r}: there are {', '.join(ROLES)}")
    return roles
