"""What a harness asks for and what it is answered, in one form for all dialects.

A dialect reads its requests into `Asked` and writes an `Answer`; nothing else of the gateway knows a wire format.
Messages and tools are those of the OpenAI chat API, since model servers take them as they are.
"""

import json
from collections.abc import Iterable, Sequence

from pydantic import JsonValue

from clotho.frozen_model import FrozenModel
from clotho.models.messages import ChatMessage, FunctionCall, ToolSchema
from clotho.untrusted import Unreadable, load_json

Part = dict[str, JsonValue]
"""One part of a message's content, as the OpenAI chat API describes it."""
Content = str | tuple[Part, ...] | None

TEXT_SEPARATOR = "\n"
"""Between texts that a harness sends as several blocks of one message: chat templates see one text."""
FREEFORM_FIELD = "input"
"""The only parameter of the function as which a freeform tool is offered."""


class InvalidRequest(Exception):
    """A request that its dialect's API would refuse, with that API's status and words."""

    def __init__(self, message: str, status: int = 400) -> None:
        super().__init__(message)
        self.message = message
        self.status = status


class Asked(FrozenModel):
    """One request of a harness for the model's next message."""

    messages: tuple[ChatMessage, ...]
    """`developer` messages have become `system` ones."""
    tools: tuple[ToolSchema, ...] = ()
    custom_tools: frozenset[str] = frozenset()
    """Names of freeform tools, which `tools` offers as functions with one string parameter, `input`."""
    namespaces: dict[str, str] = {}
    """Namespaces of tools by the names that `tools` offers, which begin with them."""
    model: str
    stream: bool = False
    requested: dict[str, JsonValue] = {}
    """Parameters and hosted tools that the harness asked for and doesn't get, for the record."""


class Answer(FrozenModel):
    """The model's message and what a dialect writes beside it; tools are those of the request."""

    message: ChatMessage
    finish_reason: str | None = None
    prompt_tokens: int = 0
    completion_tokens: int = 0
    custom_tools: frozenset[str] = frozenset()
    namespaces: dict[str, str] = {}


def text_part(text: str) -> Part:
    return {"type": "text", "text": text}


def image_part(url: str, detail: str | None = None) -> Part:
    return {"type": "image_url", "image_url": {"url": url, **({"detail": detail} if detail else {})}}


def content_of(parts: Sequence[Part]) -> str | tuple[Part, ...]:
    """Parts as content: a plain text where all of them are texts."""
    if all(part.get("type") == "text" for part in parts):
        return joined(str(part["text"]) for part in parts)
    return tuple(parts)


def text_of(content: Content) -> str:
    """The texts of a message's content."""
    if content is None or isinstance(content, str):
        return content or ""
    return joined(text for part in content if isinstance(text := part.get("text"), str))


def joined(texts: Iterable[str]) -> str:
    return TEXT_SEPARATOR.join(texts)


def function_tool(name: str, description: str | None, parameters: Part | None) -> ToolSchema:
    """A function as a tool, without what other APIs add to it: the model's prompt shows all of it."""
    function: Part = {"name": name}
    if description:
        function["description"] = description
    function["parameters"] = parameters or {"type": "object", "properties": {}}
    return {"type": "function", "function": function}


def freeform_tool(name: str, description: str | None, format: Part | None) -> ToolSchema:
    """A tool that takes any text, or one of a grammar, as a function that takes a string."""
    said = "Text of the call."
    if format and isinstance(format.get("definition"), str):
        said += f" It follows this grammar ({format.get('syntax')}):\n{format['definition']}"
    field: Part = {"type": "string", "description": said}
    parameters: Part = {
        "type": "object",
        "properties": {FREEFORM_FIELD: field},
        "required": [FREEFORM_FIELD],
    }
    return function_tool(name, description, parameters)


def arguments_object(arguments: str) -> dict[str, JsonValue]:
    """A call's arguments as an object, for APIs that have one there: {} for none, {"input": …} for other text."""
    try:
        value = load_json(arguments or "{}")
        json.dumps(value, allow_nan=False)  # 1e999 is read as an infinity, which JSON can't hold
    except (Unreadable, ValueError):
        value = None
    return value if isinstance(value, dict) else {FREEFORM_FIELD: arguments}


def respelt(message: ChatMessage) -> ChatMessage:
    """An assistant's message without what no harness preserves, to compare it with the one that comes back.

    Clients in JavaScript write arguments anew: without spaces, 1.0 as 1, keys that are numbers first.
    """
    calls = tuple(
        call.model_copy(
            update={
                "function": FunctionCall(
                    name=call.function.name, arguments=_sorted_json(arguments_object(call.function.arguments))
                )
            }
        )
        for call in message.tool_calls
    )
    return message.model_copy(update={"content": text_of(message.content) or None, "tool_calls": calls})


def _sorted_json(value: JsonValue) -> str:
    def number(digits: str) -> float | int:
        return int(whole) if (whole := float(digits)).is_integer() else whole

    return json.dumps(json.loads(json.dumps(value), parse_float=number), sort_keys=True)


def freeform_arguments(text: str) -> str:
    return json.dumps({FREEFORM_FIELD: text}, ensure_ascii=False)


def freeform_text(arguments: str) -> str:
    """The text of a freeform tool's call; arguments of another shape are given as they were sampled."""
    try:
        value = load_json(arguments)
    except Unreadable:
        return arguments
    text = value.get(FREEFORM_FIELD) if isinstance(value, dict) else None
    return text if isinstance(text, str) else arguments
