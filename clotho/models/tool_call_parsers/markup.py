"""Shared parts of the dialects with their own markup: an answer cut into segments, and their parsing."""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum

from clotho.models.tool_call_parsers.parser import ParsedAnswer, ParsedCall


@dataclass(frozen=True)
class PlainText:
    """Text outside any markup."""

    text: str


@dataclass(frozen=True)
class EmptyCall:
    """Markup of a call in which no call is begun."""


@dataclass(frozen=True)
class Block:
    """A call as written: the raw name, the raw arguments, and all of it."""

    name: str
    body: str
    text: str


@dataclass(frozen=True)
class Opening:
    """A call begins next: text ends here."""


class Unread(Enum):
    """Why a block is no call."""

    MALFORMED = "malformed"
    UNOFFERED = "unoffered"


Segment = PlainText | EmptyCall | Opening | Block


def conclude(
    segments: Iterable[Segment], read: Callable[[Block], ParsedCall | Unread], *, trims: bool = True
) -> ParsedAnswer:
    """Content is the prose before the first block, or all prose where no block is a call.

    Blank content beside a block is none. `trims`: content beside calls loses the white space at its ends.
    """
    written = tuple(segments)
    parsed = [read(segment) if isinstance(segment, Block) else None for segment in written]
    calls = tuple(call for call in parsed if isinstance(call, ParsedCall))
    blocks = [index for index, segment in enumerate(written) if isinstance(segment, Block | Opening)]
    prose_ends = blocks[0] if calls else len(written)
    content = "".join(segment.text for segment in written[:prose_ends] if isinstance(segment, PlainText))
    if blocks and ((trims and calls) or not content.strip()):
        content = content.strip()
    empty = sum(isinstance(segment, EmptyCall) for segment in written)
    return ParsedAnswer(
        content=content or None,
        calls=calls,
        malformed=parsed.count(Unread.MALFORMED) + empty,
        unoffered=parsed.count(Unread.UNOFFERED),
    )


def pairs(
    body: str, opening: re.Pattern[str], middle: re.Pattern[str], closing: re.Pattern[str]
) -> tuple[list[tuple[str, str]], bool]:
    """The names and values that are complete, and whether another one is begun after them.

    The next is looked for from a closing mark on, which may be its opening one.
    """
    complete: list[tuple[str, str]] = []
    start = opening.search(body)
    while start and (between := middle.search(body, start.end())):
        end = closing.search(body, between.end())
        if end is None:
            break
        complete.append((body[start.end() : between.start()], body[between.end() : end.start()]))
        start = opening.search(body, end.start())
    return complete, start is not None
