"""The beginning of a call's command, fit for histories and summaries: bounded, on one line, without secrets."""

import json
from collections.abc import Callable, Sequence

from clotho.escaping import displayable
from clotho.tools.secrecy import Redactors, without_tokens

SHOWN = 60
LONGEST_READ = 100_000
"""Characters of arguments beyond which nothing is shown: they would be parsed for a few of them."""
FIELDS = ("command", "path", "pattern")


class CommandPreviews:
    """Reads commands out of arguments; `variable` gives the values that a run wants redacted."""

    def __init__(self, variable: Callable[[str], str | None]) -> None:
        self._redactors = Redactors(variable)

    def of(self, arguments: str, redact: Sequence[str]) -> str:
        """The preview of a call, at most 60 characters; empty for arguments without a command, path or pattern."""
        # Redacted before it is cut: half a secret has no known shape.
        return displayable(without_tokens(self._redactors.of(redact)(_command(arguments))), SHOWN)


def _command(arguments: str) -> str:
    if len(arguments) > LONGEST_READ:
        return ""
    try:
        fields = json.loads(arguments)
    except (ValueError, RecursionError):
        return ""
    if not isinstance(fields, dict):
        return ""
    found = (fields.get(name) for name in FIELDS)
    return next((" ".join(value.split()) for value in found if isinstance(value, str) and value.strip()), "")
