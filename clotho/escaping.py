"""Text from models, sandboxes and servers, escaped and cut for the place where it is shown.

`for_terminal` keeps lines; `for_line` is for what must stay one line, such as a log's; `for_markdown` is for
details and summaries in the Temporal UI; `json_line` loses nothing; `displayable` is for names, `truncate_middle`
for messages of errors.
"""

import json
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pydantic import JsonValue

CONTROL = r"\x00-\x08\x0b-\x1f\x7f-\x9f"
DIRECTION = r"\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"
"""Characters that make text read as what it is not."""
SEPARATORS = r"\u2028\u2029"
"""Line breaks to some programs."""
SURROGATES = r"\ud800-\udfff"
"""No text of their own: they can't be encoded."""
INVISIBLE = r"\ufff9-\ufffb\U000e0000-\U000e007f"
"""Marks of annotations, and letters that no terminal shows."""

MESSAGE_CHARACTERS = 1_500
"""Characters of an error's message that are kept."""
TOOL_NAME_CHARACTERS = 64

_UNSAFE = f"{CONTROL}{DIRECTION}{SEPARATORS}{SURROGATES}{INVISIBLE}"
_IN_LINES = re.compile(f"[{_UNSAFE}]")
_IN_A_LINE = re.compile(f"[{_UNSAFE}\t\n]")


def for_terminal(text: str) -> str:
    """`text` with control characters made visible; line breaks and tabs stay."""
    return _IN_LINES.sub(_picture, text)


def for_line(text: str) -> str:
    """`text` with control characters, line breaks and tabs made visible."""
    return _IN_A_LINE.sub(_picture, text)


def for_markdown(text: str) -> str:
    """`text` on one line as a code span, in which neither Markdown nor HTML nor links mean anything."""
    # a backtick would end the span, and an empty span is no span
    return f"`{for_line(text).replace('`', 'ˋ') or ' '}`"


def json_line(value: "JsonValue") -> str:
    """`value` as one line of JSON, harmless on a terminal: what is unsafe there is written as its code."""
    return _IN_A_LINE.sub(_code, json.dumps(value, ensure_ascii=False))


def displayable(name: str, limit: int = TOOL_NAME_CHARACTERS) -> str:
    """`name`, which a model invented, escaped and cut for histories, summaries and logs."""
    clean = "".join(c if c.isprintable() else "�" for c in name)
    return clean if len(clean) <= limit else clean[: limit - 1] + "…"


def truncate_middle(text: str, limit: int = MESSAGE_CHARACTERS) -> str:
    """`text` cut to `limit` characters, the middle left out."""
    if len(text) <= limit:
        return text
    # two thirds for the end: there a traceback names its error
    head = limit // 3
    return f"{text[:head]} … {text[-(limit - head - 3) :]}"


def _picture(found: re.Match[str]) -> str:
    code = ord(found[0])
    if code < 0x20:
        return chr(0x2400 + code)
    return "␡" if code == 0x7F else "\ufffd"


def _code(found: re.Match[str]) -> str:
    # JSON writes characters beyond U+FFFF as two codes; surrogates of their own can't be encoded otherwise
    units = found[0].encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))
