"""Digests of what harnesses send, equal for what two starts of one harness send alike.

A harness that starts anew repeats its requests but for texts that it makes anew each time. What is replaced here
is lost to the digest, and too much of it would give one request another's answer: patterns are as narrow as what
was measured, and everything else tells requests apart.
"""

import hashlib
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

from pydantic import JsonValue

from clotho.models.messages import ChatMessage, ToolSchema
from clotho.untrusted import Unreadable, load_json

DIGEST_CHARACTERS = 24
LARGEST_EXACT = 2**53
MARK = "\0"
"""Begins what stands for a replaced text; one in a text itself is doubled."""


@dataclass(frozen=True)
class Volatile:
    """A text that differs between two starts which are otherwise equal."""

    role: Literal["system", "user", "assistant", "tool", "tools"]
    """The role of the messages that have it; `tools`: descriptions of tools."""
    pattern: re.Pattern[str]


class Normalization:
    """Replaces what differs between starts of one harness; `places`: workspace and home of this start."""

    def __init__(self, volatile: Sequence[Volatile], places: Sequence[str]) -> None:
        self._volatile = tuple(volatile)
        self._numbers = {text: f"{MARK}P{at};" for at, text in enumerate(_names(places))}
        # alternatives are tried in order: a folder inside of another place would match as that one
        longest_first = sorted(self._numbers, key=len, reverse=True)
        every = "|".join(map(re.escape, longest_first))
        # whole paths alone: /work isn't in /workshop or in my/work
        self._places = re.compile(rf"(?<![\w.~-])(?:{every})(?![\w-])") if every else None

    def digest(self, message: ChatMessage) -> str:
        return _digest(self.normalized(message))

    def digest_of_tools(self, tools: Iterable[ToolSchema], freeform: Iterable[str] = ()) -> str:
        """The digest of the tools of a request; `freeform` are the names of those that take plain text."""
        texts: JsonValue = [self._texts("tools", tool) for tool in tools]
        return _digest(json.dumps([texts, sorted(freeform)], sort_keys=True))

    def normalized(self, message: ChatMessage) -> str:
        """The message without what differs between two starts; equal texts are equal messages."""
        calls: JsonValue = [
            [call.id, call.function.name, self._arguments(call.function.arguments)]
            for call in message.tool_calls
        ]
        kept: JsonValue = [message.role, self._content(message), calls, message.tool_call_id, message.name]
        return json.dumps(kept, sort_keys=True)

    def _content(self, message: ChatMessage) -> JsonValue:
        """Texts that follow each other are one, as chat templates see them."""
        content: Sequence[dict[str, JsonValue]]
        if isinstance(message.content, str):
            content = [{"type": "text", "text": message.content}]
        else:
            content = message.content or ()
        parts: list[JsonValue] = []
        for part in content:
            text = part.get("text")
            if not isinstance(text, str) or part.keys() != {"type", "text"}:
                parts.append(part)
            elif parts and isinstance(before := parts[-1], str):
                parts[-1] = f"{before}\n{text}"
            else:
                parts.append(text)
        if message.role == "assistant":
            parts = [part.rstrip() if isinstance(part, str) else part for part in parts]
        return self._texts(message.role, [part for part in parts if part != ""])

    def _arguments(self, arguments: str) -> JsonValue:
        """Harnesses read arguments and write them again; what is no JSON comes back as it was."""
        try:
            return ["json", self._texts("assistant", load_json(arguments))]
        except Unreadable:
            return ["text", self._texts("assistant", arguments)]

    def _texts(self, role: str, value: JsonValue) -> JsonValue:
        """The value with all of its texts normalized."""
        match value:
            case str():
                return self._text(role, value)
            case list():
                return [self._texts(role, each) for each in value]
            case dict():
                return {self._text(role, name): self._texts(role, each) for name, each in value.items()}
            case float() if value.is_integer() and abs(value) < LARGEST_EXACT:
                return int(value)  # JavaScript knows no other numbers, and writes 5.0 as 5
        return value

    def _text(self, role: str, text: str) -> str:
        text = text.replace(MARK, MARK * 2)
        for at, each in enumerate(self._volatile):
            if each.role == role:
                text = each.pattern.sub(partial(_marked, f"{MARK}V{at};"), text)
        if self._places is not None:
            text = self._places.sub(lambda found: self._numbers[found[0]], text)
        return text


def _marked(mark: str, _: re.Match[str]) -> str:
    return mark


def _names(places: Sequence[str]) -> Iterable[str]:
    """The places, and the names that Claude Code gives to its folders for them; `/` is part of every path."""
    for place in places:
        if place != "/":
            yield place
            yield re.sub(r"[^A-Za-z0-9]", "-", place)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:DIGEST_CHARACTERS]
