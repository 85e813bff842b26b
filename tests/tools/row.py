"""A row of the conformance suite: what one tool is called with, and what its calls do."""

from dataclasses import dataclass
from typing import Any, Literal

Arguments = dict[str, Any]

SESSION = "$session"
"""In arguments: the background process that an earlier call has started."""

Call = tuple[str, Arguments]


@dataclass(frozen=True)
class Row:
    """One tool: calls of it, what they do, and what holds for them."""

    good: Arguments
    """A call that does what it should."""
    spelled: Arguments
    """The same call with types as models confuse them."""
    bad: Arguments | None
    """A call that breaks the schema; None where none does."""
    effect: Literal["none", "once", "told", "idempotent"]
    """Of an interrupted call that is tried again: none, not repeated, told to the model, or repeated in vain."""
    lost: Literal["looks again", "repeated", "diverged"] = "looks again"
    """What becomes of a finished call when its sandbox is lost."""
    before: tuple[Call, ...] = ()
    """Calls that it needs to have been made."""
    shows: str | Call | None = None
    """A command that prints the effect, or a call whose result is the effect."""
    prints: str = ""
    """What it prints after one call."""
    long: Arguments | None = None
    """A call whose result is longer than LONG_CHARS; None: there is none."""
    long_before: tuple[Call, ...] = ()
    slow: bool = False
    """Its tests take minutes together: they are left to `make test-all`."""
    varies: tuple[str, ...] = ()
    """Fields of the result that differ between two calls that do the same."""
    stands_for: str | None = None
    """The tools that it is one of, where a table tells of all of them."""
