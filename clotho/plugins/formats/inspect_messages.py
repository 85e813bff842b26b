"""Messages in the form that Inspect's logs have."""

import json
from collections.abc import Sequence

from pydantic import JsonValue

from clotho.evaluation.recorded import parsed_arguments
from clotho.models.messages import ChatMessage, ToolCall

ROLES = {"developer": "system"}


def message_fields(number: int, message: ChatMessage) -> dict[str, JsonValue]:
    """The message with this number in its conversation."""
    fields: dict[str, JsonValue] = {
        "id": f"message-{number}",
        "role": ROLES.get(message.role, message.role),
        "content": _content(message),
    }
    if message.role == "assistant":
        fields |= {
            "source": "generate",
            "tool_calls": [_tool_call(call) for call in message.tool_calls] or None,
        }
    if message.role == "tool":
        fields |= {"tool_call_id": message.tool_call_id, "function": message.name}
    return fields


def last_text(messages: Sequence[ChatMessage]) -> str | None:
    """The text of the model's last message."""
    last = next((each for each in reversed(messages) if each.role == "assistant"), None)
    return last.content if last is not None and isinstance(last.content, str) else None


def all_text(messages: Sequence[ChatMessage]) -> str:
    """The texts of all messages; what is no text in them is JSON."""
    texts = [each.content if isinstance(each.content, str) else json.dumps(each.content) for each in messages]
    return "\n".join(texts)


def _content(message: ChatMessage) -> JsonValue:
    content = message.content
    if not message.reasoning_content and (content is None or isinstance(content, str)):
        return content or ""
    parts: list[JsonValue] = []
    if message.reasoning_content:
        parts.append({"type": "reasoning", "reasoning": message.reasoning_content})
    if isinstance(content, str):
        parts.append({"type": "text", "text": content})
    return [*parts, *(_part(part) for part in content or () if isinstance(part, dict))]


def _part(part: dict[str, JsonValue]) -> JsonValue:
    match part:
        case {"type": "text", "text": str(text)}:
            return {"type": "text", "text": text}
        case {"type": "image_url", "image_url": {"url": str(url)}}:
            return {"type": "image", "image": url}
    return {"type": "text", "text": json.dumps(part)}


def _tool_call(call: ToolCall) -> JsonValue:
    arguments, error = parsed_arguments(call.function.arguments)
    return {
        "id": call.id,
        "type": "function",
        "function": call.function.name,
        "arguments": arguments,
        "parse_error": error,
    }
