"""Fuzzy search for the text that an edit names: nine strategies, from exact to similar; the first hit wins."""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from clotho.errors import InvalidInput
from clotho.tools.files.normalised import Normalised, Span, blocks, occurrences
from clotho.tools.files.similarity import block_anchor, context_aware

BLANKS = re.compile(r"[^\S\n]+")
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

    Raises InvalidInput where nothing matches, where several places do and `replace_all` is not set, and where
    several places are only similar.
    """
    if not old.strip():
        raise InvalidInput("old_string is empty or only whitespace: give the text to replace")
    if old == new:
        raise InvalidInput("old_string and new_string are identical")
    match = find(text, old)
    if match is None:
        raise InvalidInput(
            "Could not find a match for old_string in the file. Read it again and copy the text."
        )
    if len(match.spans) > 1 and (not replace_all or match.strategy in SIMILAR):
        raise InvalidInput(_ambiguous(text, match))
    return Replacement(substituted(text, match, old, new), len(match.spans), match.strategy)


def find(text: str, old: str, whole_lines: bool = False) -> Match | None:
    """The match of the first strategy that finds `old` in `text`; `whole_lines` refuses starts within a line."""
    tolerant = bool(old.strip())
    for name, strategy in STRATEGIES.items() if tolerant else [("exact", occurrences)]:
        spans = tuple(
            span
            for span in strategy(text, old)
            if not whole_lines or span[0] == 0 or text[span[0] - 1] == "\n"
        )
        if spans:
            return Match(name, spans)
    return None


def substituted(text: str, match: Match, old: str, new: str) -> str:
    """`text` with `new` at each place of `match`, adapted the way its strategy took `old`."""
    parts, end = [], 0
    for start, stop in match.spans:
        parts += [text[end:start], _adapted(match.strategy, text[start:stop], old, new)]
        end = stop
    return "".join([*parts, text[end:]])


def _adapted(strategy: str, region: str, old: str, new: str) -> str:
    if strategy in ("line_trimmed", "indentation_flexible", *SIMILAR):
        return _reindented(region, old, new)
    if strategy == "escape_normalized":
        return _unescaped(new)
    if strategy == "trimmed_boundary":
        lead = len(old) - len(old.lstrip())
        return new.removeprefix(old[:lead]).removesuffix(old[len(old.rstrip()) :])
    return new


def _reindented(region: str, old: str, new: str) -> str:
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
    return "\n".join(_shifted(line, meant) for line in new.split("\n"))


def _indent(line: str) -> str:
    return line[: len(line) - len(line.lstrip(" \t"))]


def _shifted(line: str, meant: dict[str, str]) -> str:
    known = max((own for own in meant if _indent(line).startswith(own)), key=len, default=None)
    return line if known is None or not line.strip() else meant[known] + line[len(known) :]


SIMILAR = ("block_anchor", "context_aware")


def _escape_normalized(text: str, old: str) -> Iterable[Span]:
    plain = _unescaped(old)
    return occurrences(text, plain) if plain != old and plain.strip() else ()


STRATEGIES: dict[str, Callable[[str, str], Iterable[Span]]] = {
    "exact": occurrences,
    "line_trimmed": lambda text, old: blocks(text, old, str.strip),
    "whitespace_normalized": lambda text, old: Normalised(text, BLANKS, lambda run: " ").spans(old),
    "indentation_flexible": lambda text, old: blocks(text, old, lambda line: " ".join(line.split())),
    "escape_normalized": _escape_normalized,
    "trimmed_boundary": lambda text, old: occurrences(text, old.strip()),
    "unicode_normalized": lambda text, old: Normalised(text, TYPOGRAPHIC, _typed).spans(old),
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
