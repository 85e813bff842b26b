"""Tool calls and their results as text: without the JSON that the model sees around it."""

import json
from typing import Any

WHOLE = ("output", "content", "diff", "error")
"""Fields that are text of their own; the others are told on one line."""


def result_text(content: str) -> str:
    """A tool's result: its texts as they are, then what else it says; what is no JSON object, unchanged."""
    fields = _object(content)
    if fields is None:
        return content
    texts = [str(fields[name]) for name in WHOLE if isinstance(fields.get(name), str) and fields[name]]
    rest = {
        name: value
        for name, value in fields.items()
        if value not in (None, "") and not (name in WHOLE and isinstance(value, str))
    }
    line = " · ".join(
        f"{name} {value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)}"
        for name, value in rest.items()
    )
    return "\n".join(text.rstrip("\n") for text in (*texts, line) if text)


def call_text(name: str, arguments: str) -> str:
    """A call: as the model wrote it, but arguments of several lines as text under it."""
    fields = _object(arguments)
    if fields is None or not any(isinstance(value, str) and "\n" in value for value in fields.values()):
        return f"{name}({arguments})"
    short = {key: value for key, value in fields.items() if not (isinstance(value, str) and "\n" in value)}
    long = [f"{key}:\n{value}" for key, value in fields.items() if key not in short]
    return "\n".join([f"{name}({json.dumps(short, ensure_ascii=False) if short else ''})", *long])


def _object(text: str) -> dict[str, Any] | None:
    """The JSON object that `text` is, if it can be written again."""
    try:
        value = json.loads(text)
        json.dumps(value)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None
