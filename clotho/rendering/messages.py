"""Messages as chat templates and the `renderers` package expect them: plain text, call arguments parsed."""

import json
from collections.abc import Sequence

from pydantic import JsonValue

from clotho.errors import InvalidInput
from clotho.inference.base import ChatMessage

Templated = dict[str, JsonValue]


def templated(messages: Sequence[ChatMessage], *, parsed: bool = True) -> list[Templated]:
    """`messages` for a template, the arguments of calls `parsed` or as text.

    Raises InvalidInput for content that isn't text.
    """
    return [_templated(message, parsed) for message in messages]


def _templated(message: ChatMessage, parsed: bool) -> Templated:
    shown: Templated = {"role": message.role, "content": _text(message)}
    if message.reasoning_content:
        shown["reasoning_content"] = message.reasoning_content
    if message.tool_calls:
        shown["tool_calls"] = [
            {
                "id": call.id,
                "type": call.type,
                "function": {
                    "name": call.function.name,
                    "arguments": _arguments(call.function.arguments, parsed),
                },
            }
            for call in message.tool_calls
        ]
    if message.tool_call_id is not None:
        shown["tool_call_id"] = message.tool_call_id
    if message.name is not None:
        shown["name"] = message.name
    return shown


def _text(message: ChatMessage) -> str:
    if not isinstance(message.content, tuple):
        return message.content or ""
    pieces = [part.get("text") for part in message.content if part.get("type") == "text"]
    if len(pieces) != len(message.content):
        raise InvalidInput(f"a {message.role} message holds parts that aren't text, which tokens can't show")
    return "\n".join(str(piece) for piece in pieces)


def _arguments(written: str, parsed: bool) -> JsonValue:
    """An object in any case: templates iterate over it, and what a model wrote may not fail its rollout."""
    try:
        value = json.loads(written)
        # Half a character, which JSON can escape, is no text for a tokenizer.
        json.dumps(value, ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        value = None
    if isinstance(value, dict):
        return value if parsed else written
    shown: JsonValue = {"arguments": written}
    return shown if parsed else json.dumps(shown)
