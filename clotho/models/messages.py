"""Chat messages and tool calls."""

from collections.abc import Sequence
from typing import Literal

from pydantic import JsonValue

from clotho.frozen_model import FrozenModel

ToolSchema = dict[str, JsonValue]
"""A tool as the OpenAI API describes it: {"type": "function", "function": {...}}."""


class FunctionCall(FrozenModel):
    name: str
    arguments: str
    """The arguments as sampled: JSON by convention, unchecked."""


class ToolCall(FrozenModel):
    id: str
    function: FunctionCall
    type: Literal["function"] = "function"


class CallDefects(FrozenModel):
    """Counts of a turn's tool calls that were not run, or not as the model wrote them."""

    malformed: int = 0
    """Blocks in which no call could be read."""
    truncated: int = 0
    """Calls that were cut off, and run with the arguments that were complete."""
    unoffered: int = 0
    """Calls of tools that weren't offered, which the model's parser leaves out."""
    beyond_limit: int = 0
    """Calls after as many as a turn may have."""

    @property
    def total(self) -> int:
        return self.malformed + self.truncated + self.unoffered + self.beyond_limit

    def __str__(self) -> str:
        counts = self.model_dump()
        return ", ".join(f"{count} {name.replace('_', ' ')}" for name, count in counts.items() if count)


class ChatMessage(FrozenModel):
    """A message in the OpenAI wire format; `wire()` is what a server is sent."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | tuple[dict[str, JsonValue], ...] | None = None
    reasoning_content: str | None = None
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None
    name: str | None = None

    def wire(self) -> dict[str, JsonValue]:
        """The message without its unset fields; an assistant's content stays, null or not."""
        wire: dict[str, JsonValue] = self.model_dump(
            mode="json", exclude_none=True, exclude=None if self.tool_calls else {"tool_calls"}
        )
        wire.setdefault("content", None)
        return wire


Messages = Sequence[ChatMessage]
Tools = Sequence[ToolSchema]
TokenIds = Sequence[int]
