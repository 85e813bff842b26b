"""Finding the place in a file that a model means: nine strategies, from exact to similar; the first hit wins."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from clotho.errors import InvalidInput
from clotho.toolsets.files.indentation import reindented
from clotho.toolsets.files.similarity import block_anchor, context_aware

Span = tuple[int, int]
BLANK = r"[^\S\n]"

TYPOGRAPHY = {
    "...": r"(?:\.\.\.|…)",
    "--": r"(?:--|[–—])",
    '"': r'["“”„‟«»]',
    "'": r"['‘’‚‛]",
    "-": r"[-‐‑‒–—−]",
    " ": r"[ \u00a0\u2000-\u200a\u202f\u205f\u3000]",
}
TYPOGRAPHIC = re.compile("|".join(map(re.escape, TYPOGRAPHY)))
PLAIN = str.maketrans(
    {
        **dict.fromkeys("“”„‟«»", '"'),
        **dict.fromkeys("‘’‚‛", "'"),
        **dict.fromkeys("‐‑‒–−", "-"),
        **dict.fromkeys(
            "\u00a0\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u202f\u205f\u3000", " "
        ),
        "—": "--",
        "…": "...",
    }
)
ESCAPED = re.compile(r"""\\([ntr"'\\])""")
UNESCAPED = {"n": "\n", "t": "\t", "r": "\r"}
SHOWN_MATCHES = 5


@dataclass(frozen=True)
class Match:
    """Where a strategy found a text."""

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
    """Where the first strategy that finds `old` in `text` finds it; `whole_lines` refuses starts within a line."""
    tolerant = bool(old.strip())
    for name, strategy in STRATEGIES.items() if tolerant else [("exact", _exact)]:
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
        return reindented(region, old, new)
    if strategy == "escape_normalized":
        return _unescaped(new)
    if strategy == "trimmed_boundary":
        lead = len(old) - len(old.lstrip())
        return new.removeprefix(old[:lead]).removesuffix(old[len(old.rstrip()) :])
    return new


def _exact(text: str, old: str) -> Sequence[Span]:
    spans, start = [], text.find(old)
    while start >= 0:
        spans.append((start, start + len(old)))
        start = text.find(old, start + len(old))
    return spans


def _line_trimmed(text: str, old: str) -> Sequence[Span]:
    return _spans(_lines_pattern(old, re.escape), text)


def _whitespace_normalized(text: str, old: str) -> Sequence[Span]:
    return _spans(_loose(old), text)


def _indentation_flexible(text: str, old: str) -> Sequence[Span]:
    return _spans(_lines_pattern(old, _loose), text)


def _escape_normalized(text: str, old: str) -> Sequence[Span]:
    plain = _unescaped(old)
    return _exact(text, plain) if plain != old and plain.strip() else ()


def _trimmed_boundary(text: str, old: str) -> Sequence[Span]:
    return _exact(text, old.strip())


def _unicode_normalized(text: str, old: str) -> Sequence[Span]:
    plain, parts, end = old.translate(PLAIN), [], 0
    for token in TYPOGRAPHIC.finditer(plain):
        parts += [re.escape(plain[end : token.start()]), TYPOGRAPHY[token.group()]]
        end = token.end()
    return _spans("".join([*parts, re.escape(plain[end:])]), text)


SIMILAR = ("block_anchor", "context_aware")

STRATEGIES: dict[str, Callable[[str, str], Sequence[Span]]] = {
    "exact": _exact,
    "line_trimmed": _line_trimmed,
    "whitespace_normalized": _whitespace_normalized,
    "indentation_flexible": _indentation_flexible,
    "escape_normalized": _escape_normalized,
    "trimmed_boundary": _trimmed_boundary,
    "unicode_normalized": _unicode_normalized,
    "block_anchor": block_anchor,
    "context_aware": context_aware,
}


def _spans(pattern: str, text: str) -> list[Span]:
    return [match.span() for match in re.finditer(pattern, text, re.MULTILINE)]


def _loose(text: str) -> str:
    """A pattern for `text` in which any run of blanks stands for any other."""
    return "".join(
        f"{BLANK}+" if part.isspace() and "\n" not in part else re.escape(part) for part in _runs(text)
    )


def _runs(text: str) -> list[str]:
    return [part for part in re.split(rf"({BLANK}+)", text) if part]


def _lines_pattern(old: str, line_pattern: Callable[[str], str]) -> str:
    """A pattern for the whole lines of `old`, whatever blanks are around each."""
    lines = old.removesuffix("\n").split("\n")
    around = [
        f"{BLANK}*{line_pattern(line.strip())}{BLANK}*" if line.strip() else f"{BLANK}*" for line in lines
    ]
    ending = "(?:\n|\\Z)" if old.endswith("\n") else "$"
    return "^" + "\n".join(around) + ending


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
