"""Fuzzy search for the text that an edit names: nine strategies, from exact to similar; the first hit wins."""

import re
from bisect import bisect_right
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import islice

from clotho.errors import InvalidInput
from clotho.tools.files.matching import Budget, TooMuchWork
from clotho.tools.files.normalised import BLANKS, Normalised, Span, blocks, collapsed, occurrences, trimmed
from clotho.tools.files.similarity import block_anchor, context_aware

MAX_CHARS = 5_000_000
"""Characters of a file after a replacement."""
MOST_PLACES = 100_000
"""Places of a text that are told apart, or replaced at once."""
TYPOGRAPHY = {
    **dict.fromkeys("“”„‟«»", '"'),
    **dict.fromkeys("‘’‚‛", "'"),
    **dict.fromkeys("‐‑‒–−", "-"),
    **dict.fromkeys("\u00a0\u202f\u205f\u3000", " "),
    **{chr(code): " " for code in range(0x2000, 0x200B)},
    "—": "--",
    "…": "...",
}
TYPOGRAPHIC = re.compile(f"[{''.join(TYPOGRAPHY)}]")
ESCAPED = re.compile(r"""\\([ntr"'\\])""")
UNESCAPED = {"n": "\n", "t": "\t", "r": "\r"}
SHOWN_MATCHES = 5

Strategy = Callable[[str, str, Budget], Iterable[Span]]
"""Finds a text in another within a budget. Raises TooMuchWork."""


@dataclass(frozen=True)
class Match:
    """The places where a strategy found a text."""

    strategy: str
    spans: tuple[Span, ...]
    """Character ranges [start, end) in order; they don't overlap."""


@dataclass(frozen=True)
class Replacement:
    text: str
    count: int
    strategy: str


def replace(text: str, old: str, new: str, replace_all: bool = False) -> Replacement:
    """Replace `old` in `text` by `new`.

    Raises InvalidInput where nothing matches, where several places do and `replace_all` is not set, where
    several places are only similar, and where the result would be too long.
    """
    if not old.strip():
        raise InvalidInput("old_string is empty or only whitespace: give the text to replace")
    if old == new:
        raise InvalidInput("old_string and new_string are identical")
    match = find(text, old, Budget())
    if match is None:
        raise InvalidInput(
            "Could not find a match for old_string in the file. Read it again and copy the text."
        )
    # similar places are guesses: several of them are never replaced at once
    if len(match.spans) > 1 and (not replace_all or match.strategy in SIMILAR):
        raise InvalidInput(_ambiguous(text, match))
    return Replacement(substituted(text, match, old, new), len(match.spans), match.strategy)


def find(text: str, old: str, budget: Budget, whole_lines: bool = False) -> Match | None:
    """The match of the first strategy that finds `old` in `text`; `whole_lines` refuses starts within a line.

    `budget` may be shared by several searches. Raises InvalidInput once it is used up, and for too many places.
    """
    # blanks alone would match in many places once they are normalised
    tolerant = bool(old.strip())
    for name, strategy in STRATEGIES.items() if tolerant else [("exact", _exact)]:
        try:
            found = (
                span
                for span in strategy(text, old, budget)
                if not whole_lines or span[0] == 0 or text[span[0] - 1] == "\n"
            )
            spans = tuple(islice(found, MOST_PLACES + 1))
        except TooMuchWork:
            raise InvalidInput(
                "Finding all these places in files of this size takes too long: copy the old text exactly, or "
                "make fewer changes at a time"
            ) from None
        if len(spans) > MOST_PLACES:
            raise InvalidInput(f"The text to replace is in more than {MOST_PLACES:,} places: add context")
        if spans:
            return Match(name, spans)
    return None


def substituted(text: str, match: Match, old: str, new: str) -> str:
    """`text` with `new` at each place of `match`, adapted the way its strategy took `old`.

    Raises InvalidInput for a result of more than MAX_CHARS characters, before it is made.
    """
    parts, end = [], 0
    left = MAX_CHARS - len(text) + sum(stop - start for start, stop in match.spans)
    for start, stop in match.spans:
        adapted = _adapted(match.strategy, text[start:stop], old, new, left)
        left -= len(adapted)
        _require_room(left)
        parts += [text[end:start], adapted]
        end = stop
    return "".join([*parts, text[end:]])


def _require_room(left: int) -> None:
    if left < 0:
        raise InvalidInput(f"The file would have more than {MAX_CHARS:,} characters then")


def _adapted(strategy: str, region: str, old: str, new: str, most: int) -> str:
    if strategy in ("line_trimmed", "indentation_flexible", *SIMILAR):
        return _reindented(region, old, new, most)
    if strategy == "escape_normalized":
        return _unescaped(new)
    if strategy == "trimmed_boundary":
        lead = len(old) - len(old.lstrip())
        return new.removeprefix(old[:lead]).removesuffix(old[len(old.rstrip()) :])
    return new


def _reindented(region: str, old: str, new: str, most: int) -> str:
    """`new` with the indentation that `region` has where `old` has another.

    The lines of `old` and `region` correspond, which says what each of the model's indentations stands for.
    Where that is contradictory, or `new` starts with an indentation that `old` lacks, `new` stays as it is.
    """
    meant: dict[str, str] = {}
    for ours, theirs in zip(old.split("\n"), region.split("\n"), strict=False):
        if ours.strip() and meant.setdefault(_indent(ours), _indent(theirs)) != _indent(theirs):
            return new
    first = next((line for line in new.split("\n") if line.strip()), None)
    if first is None or _indent(first) not in meant:
        return new
    lengths, lines = sorted({len(own) for own in meant}), []
    for line in new.split("\n"):
        lines.append(_shifted(line, meant, lengths))
        most -= len(lines[-1])
        _require_room(most)
    return "\n".join(lines)


def _indent(line: str) -> str:
    return line[: len(line) - len(line.lstrip(" \t"))]


def _shifted(line: str, meant: dict[str, str], lengths: list[int]) -> str:
    """Replace the longest known indentation that the line begins with; `lengths` are those of the known, sorted."""
    indent = _indent(line)
    fitting = lengths[: bisect_right(lengths, len(indent))]
    known = next((own for n in reversed(fitting) if (own := indent[:n]) in meant), None)
    return line if known is None or not line.strip() else meant[known] + line[len(known) :]


SIMILAR = ("block_anchor", "context_aware")


def _exact(text: str, old: str, budget: Budget) -> Iterable[Span]:
    budget.spend_scan(text)
    return occurrences(text, old)


def _escape_normalized(text: str, old: str, budget: Budget) -> Iterable[Span]:
    plain = _unescaped(old)
    return _exact(text, plain, budget) if plain != old and plain.strip() else ()


def _whitespace_normalized(text: str, old: str, budget: Budget) -> Iterable[Span]:
    budget.spend_pass(text)
    return Normalised(text, BLANKS, " ").spans(old)


def _unicode_normalized(text: str, old: str, budget: Budget) -> Iterable[Span]:
    if TYPOGRAPHIC.search(text) is None and TYPOGRAPHIC.search(old) is None:
        return ()
    budget.spend_pass(text)
    return Normalised(text, TYPOGRAPHIC, _typed).spans(old)


def _line_by_line(normalise: Callable[[str], str]) -> Strategy:
    def strategy(text: str, old: str, budget: Budget) -> Iterable[Span]:
        budget.spend_pass(text)
        return blocks(text, old, normalise)

    return strategy


# the order that existing datasets were made with: the first hit decides what an edit changes
STRATEGIES: dict[str, Strategy] = {
    "exact": _exact,
    "line_trimmed": _line_by_line(trimmed),
    "whitespace_normalized": _whitespace_normalized,
    "indentation_flexible": _line_by_line(collapsed),
    "escape_normalized": _escape_normalized,
    "trimmed_boundary": lambda text, old, budget: _exact(text, old.strip(), budget),
    "unicode_normalized": _unicode_normalized,
    "block_anchor": block_anchor,
    "context_aware": context_aware,
}


def _typed(sign: re.Match[str]) -> str:
    return TYPOGRAPHY[sign.group()]


def _unescaped(text: str) -> str:
    return ESCAPED.sub(lambda match: UNESCAPED.get(match[1], match[1]), text)


def _ambiguous(text: str, match: Match) -> str:
    lines = [str(text.count("\n", 0, start) + 1) for start, _ in match.spans[:SHOWN_MATCHES]]
    more = ", …" if len(match.spans) > SHOWN_MATCHES else ""
    remedy = (
        "They are only similar to old_string: copy the exact text"
        if match.strategy in SIMILAR
        else "Add context to make it unique, or set replace_all=true"
    )
    return f"Found {len(match.spans)} matches for old_string, on lines {', '.join(lines)}{more}. {remedy}."
