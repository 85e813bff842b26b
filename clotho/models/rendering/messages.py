"""Messages as chat templates and the `renderers` package expect them: plain text, call arguments parsed."""

import json

from pydantic import JsonValue

from clotho.errors import InvalidInput
from clotho.models.messages import ChatMessage, Messages
from clotho.models.rendering.literals import Literals

Templated = dict[str, JsonValue]


def templated(messages: Messages, literals: Literals, *, parsed: bool = True) -> list[Templated]:
    """`messages` for a template, the arguments of calls `parsed` or as text, what looks like tokens marked.

    Raises InvalidInput for content that isn't text.
    """
    return [_templated(message, literals, parsed) for message in messages]


def _templated(message: ChatMessage, literals: Literals, parsed: bool) -> Templated:
    shown: Templated = {"role": message.role, "content": _content(message, literals)}
    if message.reasoning_content:
        shown["reasoning_content"] = literals.escape_message(message.reasoning_content)
    if message.tool_calls:
        shown["tool_calls"] = [
            {
                "id": literals.escape_message(call.id),
                "type": call.type,
                "function": {
                    "name": literals.escape_message(call.function.name),
                    "arguments": _arguments(call.function.arguments, literals, parsed),
                },
            }
            for call in message.tool_calls
        ]
    if message.tool_call_id is not None:
        shown["tool_call_id"] = literals.escape_message(message.tool_call_id)
    if message.name is not None:
        shown["name"] = literals.escape_message(message.name)
    return shown


def _content(message: ChatMessage, literals: Literals) -> str:
    """What a system's message holds is the author's, and means what it says."""
    text = _text(message)
    if message.role in ("system", "developer"):
        return text
    return literals.escape_tool_result(text) if message.role == "tool" else literals.escape_message(text)


def _text(message: ChatMessage) -> str:
    if not isinstance(message.content, tuple):
        return message.content or ""
    pieces = [part.get("text") for part in message.content if part.get("type") == "text"]
    if len(pieces) != len(message.content):
        raise InvalidInput(f"a {message.role} message holds parts that aren't text, which tokens can't show")
    return "\n".join(str(piece) for piece in pieces)


def _arguments(written: str, literals: Literals, parsed: bool) -> JsonValue:
    """An object in any case: templates iterate over it, and what a model wrote may not fail its rollout."""
    try:
        value = json.loads(written)
        shown = json.dumps(value, ensure_ascii=False)
        shown.encode()  # half a character, which JSON can escape, is no text for a tokenizer
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        written = shown = json.dumps({"arguments": written}, ensure_ascii=False)
    if not parsed:
        return literals.escape_message(written)
    arguments: JsonValue = json.loads(literals.escape_message(shown))
    return arguments
