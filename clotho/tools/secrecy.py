"""Removal of secrets: values that this process knows, and tokens of known shapes.

They are taken out of texts for the model, and of the beginnings of commands that histories and summaries show.
"""

import json
import logging
import re
from collections.abc import Callable, Iterable, Sequence

from clotho.escaping import displayable

log = logging.getLogger(__name__)

REDACTED = "[REDACTED]"
SHORTEST_SECRET = 6
"""Below this a value is more likely a word of the output than a secret."""
SCHEME = re.compile(r"(?:bearer|basic|token)\s+", re.IGNORECASE)
"""How the value of an Authorization header begins, before the secret itself."""

# each look-behind follows the prefix: in front, it would keep `re` from searching for the plain characters
# the atomic group within *+ is for Python before 3.11.5, where a possessive repeat of a group goes wrong
TOKENS = tuple(
    re.compile(token)
    for token in (
        r"sk-(?<!\wsk-)[A-Za-z0-9_-]{20,}",  # OpenAI, Anthropic and those that follow them
        r"gh[pousr]_(?<!\wgh[pousr]_)[A-Za-z0-9]{36,}",
        r"github_pat_(?<!\wgithub_pat_)[A-Za-z0-9_]{22,}",
        r"glpat-(?<!\wglpat-)[A-Za-z0-9_-]{20,}",
        r"hf_(?<!\whf_)[A-Za-z0-9]{30,}",
        r"npm_(?<!\wnpm_)[A-Za-z0-9]{36}\b",
        r"pypi-AgEI(?<!\wpypi-AgEI)[A-Za-z0-9_-]{50,}",
        r"AKIA(?<!\wAKIA)[0-9A-Z]{16}\b",
        r"ASIA(?<!\wASIA)[0-9A-Z]{16}\b",
        r"AIza(?<!\wAIza)[0-9A-Za-z_-]{35}",
        r"xox[abprs]-(?<!\wxox[abprs]-)[A-Za-z0-9-]{10,}",
        r"eyJ(?<![A-Za-z0-9_-]eyJ)[A-Za-z0-9_-]{10,}\.eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}",
        r"-----BEGIN [A-Z ]*PRIVATE KEY-----(?:(?>(?!-----)[\s\S]))*+-----END [A-Z ]*PRIVATE KEY-----",
    )
)
"""Each begins with plain characters, for which `re` searches thirty times as fast as for alternatives."""

PREVIEW_CHARACTERS = 60
PREVIEWED = ("command", "path", "pattern")
LONGEST_READ = 100_000
"""Characters of arguments beyond which there is no preview: they would be parsed for a few of them."""


def without_tokens(text: str) -> str:
    """`text` with everything redacted that has the shape of a credential."""
    for token in TOKENS:
        text = token.sub(REDACTED, text)
    return text


class Redactor:
    """Redacts given values, as they are and as they look inside JSON."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        given = [secret.strip() for secret in secrets]
        # a program may print the secret without the header's scheme
        bare = [value[scheme.end() :] for value in given if (scheme := SCHEME.match(value))]
        values = {value for value in (*given, *bare) if len(value) >= SHORTEST_SECRET}
        spellings = {
            *values,
            *(json.dumps(value, ensure_ascii=ascii)[1:-1] for value in values for ascii in (True, False)),
        }
        self._pattern = re.compile(
            # The longest first: of two values of which one begins the other, the end of the longer would
            # stay.
            # (?!) matches nowhere: an empty pattern would match everywhere
            "|".join(map(re.escape, sorted(spellings, key=len, reverse=True))) or r"(?!)"
        )

    def __call__(self, text: str) -> str:
        return self._pattern.sub(REDACTED, text)


class Redactors:
    """A Redactor for each set of environment variables whose values are secret; `variable` reads one."""

    def __init__(self, variable: Callable[[str], str | None]) -> None:
        self._variable = variable
        self._made: dict[tuple[str, ...], Redactor] = {}

    def of(self, variables: Sequence[str]) -> Redactor:
        names = tuple(variables)
        if names not in self._made:
            values = {name: self._variable(name) for name in names}
            if unset := [name for name, value in values.items() if value is None]:
                log.warning("to be redacted, and not set here: %s", ", ".join(unset))
            self._made[names] = Redactor(value for value in values.values() if value)
        return self._made[names]


class CommandPreviews:
    """Beginnings of commands, fit for histories; `variable` gives the values that a run wants redacted."""

    def __init__(self, variable: Callable[[str], str | None]) -> None:
        self._redactors = Redactors(variable)

    def of(self, arguments: str, redact: Sequence[str]) -> str:
        """The preview of a call, at most 60 characters; empty for arguments without a command, path or pattern."""
        # redacted before it is cut: half a secret has no known shape
        return displayable(
            without_tokens(self._redactors.of(redact)(_command(arguments))), PREVIEW_CHARACTERS
        )


def _command(arguments: str) -> str:
    if len(arguments) > LONGEST_READ:
        return ""
    try:
        fields = json.loads(arguments)
    except (ValueError, RecursionError):
        return ""
    if not isinstance(fields, dict):
        return ""
    found = (fields.get(name) for name in PREVIEWED)
    return next((" ".join(value.split()) for value in found if isinstance(value, str) and value.strip()), "")
