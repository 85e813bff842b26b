"""The interface of tool-call parsers, and the ids of the calls they find."""

import hashlib
import re
import string
from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from clotho.frozen_model import FrozenModel
from clotho.models.messages import CallDefects, FunctionCall, ToolCall, ToolSchema

ID_LENGTH = 9
ID_ALPHABET = string.digits + string.ascii_letters
SURROGATE = re.compile(r"[\ud800-\udfff]")


class ParsedCall(FrozenModel):
    """One call that the model wrote."""

    function: FunctionCall
    id: str | None = None
    """The id that the model gave it, in dialects that have one."""
    truncated: bool = False
    """True if the call was cut off: these are the arguments that were complete."""


class ParsedAnswer(FrozenModel):
    """A model's text, parsed."""

    content: str | None
    """The text that isn't a call, as vLLM reports it."""
    calls: tuple[ParsedCall, ...] = ()
    malformed: int = 0
    """Blocks in which no call could be read, whether the content has them or not."""
    unoffered: int = 0
    """Calls of tools that weren't offered, where the parser leaves them out."""

    @property
    def defects(self) -> CallDefects:
        truncated = sum(call.truncated for call in self.calls)
        return CallDefects(malformed=self.malformed, truncated=truncated, unoffered=self.unoffered)

    def tool_calls(self, key: str) -> tuple[ToolCall, ...]:
        """The calls with ids; where the model gave none, they derive from `key`, which names the turn."""
        return tuple(
            ToolCall(id=call.id or call_id(key, index), function=call.function)
            for index, call in enumerate(self.calls)
        )


@runtime_checkable
class ToolCallParser(Protocol):
    """Finds the tool calls of one dialect in a model's whole answer."""

    @property
    def ends_reasoning(self) -> str | None:
        """The mark that ends a think block without its closing tag, as vLLM's reasoning parser has it."""

    def parse(self, text: str, tools: Sequence[ToolSchema] = ()) -> ParsedAnswer:
        """Read `text`, decoded with its special tokens kept; `tools` are those the model was offered.

        Takes time in proportion to the text, and never raises, whatever the model wrote.
        """


def parsed_call(name: str, arguments: str, id: str | None = None, *, truncated: bool = False) -> ParsedCall:
    """A call in valid Unicode: JSON can escape half a character, and its escape is what is kept."""
    function = FunctionCall(name=_valid(name), arguments=_valid(arguments))
    return ParsedCall(function=function, id=id, truncated=truncated)


def _valid(text: str) -> str:
    return SURROGATE.sub(lambda half: f"\\u{ord(half[0]):04x}", text)


def call_id(key: str, index: int) -> str:
    """Nine letters and digits, which Mistral's templates insist on and others accept."""
    number = int.from_bytes(hashlib.sha256(f"{key}\0{index}".encode()).digest())
    digits = (number // len(ID_ALPHABET) ** place for place in range(ID_LENGTH))
    return "".join(ID_ALPHABET[digit % len(ID_ALPHABET)] for digit in digits)
