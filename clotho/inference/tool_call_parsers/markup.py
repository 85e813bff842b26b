"""What the dialects with markup of their own share: an answer cut into segments, and what they come to."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from clotho.inference.tool_call_parsers.base import ParsedAnswer, ParsedCall, joined


@dataclass(frozen=True)
class Prose:
    """Text outside any markup."""

    text: str


@dataclass(frozen=True)
class Debris:
    """Text between markup, where no text belongs."""

    text: str


@dataclass(frozen=True)
class Block:
    """A call as written: the raw name, the raw arguments, and all of it."""

    name: str
    body: str
    text: str


Segment = Prose | Debris | Block


def conclude(
    segments: Iterable[Segment], read: Callable[[Block], ParsedCall | None], *, trims: bool = True
) -> ParsedAnswer:
    """Content is the prose before the first block, or all prose where no block is a call.

    Blank content beside a block is none. `trims`: content beside calls loses the white space at its ends.
    """
    written = tuple(segments)
    parsed = [read(segment) if isinstance(segment, Block) else None for segment in written]
    calls = tuple(call for call in parsed if call)
    blocks = [index for index, segment in enumerate(written) if isinstance(segment, Block)]
    prose_ends = blocks[0] if calls else len(written)
    shown = [isinstance(segment, Prose) and index < prose_ends for index, segment in enumerate(written)]
    content = "".join(segment.text for segment, here in zip(written, shown, strict=True) if here)
    if blocks and ((trims and calls) or not content.strip()):
        content = content.strip()
    rest = (
        segment.text for segment, call, here in zip(written, parsed, shown, strict=True) if not (call or here)
    )
    return ParsedAnswer(content=content or None, calls=calls, remainder=joined(rest))
