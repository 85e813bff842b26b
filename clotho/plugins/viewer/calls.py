"""Tool calls as a page shows them: what was asked and what was answered, field by field, and changes as diffs."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup
from pydantic import JsonValue

from clotho.plugins.viewer.markup import Texts, clipped
from clotho.plugins.viewer.rollout import CallView
from clotho.tools.files.diff import unified

SHORT = 100
"""Characters of a value that stands beside its name."""
LANGUAGES = {"command": "bash", "code": "python", "script": "bash"}
"""Names of arguments -> the language of their texts."""
EXIT_CODES = {
    0: "success",
    124: "timed out",
    126: "not executable",
    127: "command not found",
    130: "interrupted",
    137: "killed",
    139: "crashed",
    143: "ended",
}


@dataclass(frozen=True)
class Part:
    """A field of a call's arguments or result."""

    name: str
    short: str | None = None
    """The value, where it is one line."""
    shown: Markup | None = None
    """The value as HTML; None where it is text without colours."""
    text: str = ""
    """The beginning of it."""
    characters: int = 0
    """Of the whole value."""


@dataclass(frozen=True)
class ShownCall:
    arguments: Sequence[Part] | None
    """None: they are shown as they are, being no JSON object."""
    result: Sequence[Part] | None


class Calls:
    """Shows the calls of one rollout, in order: a file that is written again is shown as a change."""

    def __init__(self, texts: Texts) -> None:
        self._texts = texts
        self._written: dict[str, str] = {}

    def show(self, view: CallView) -> ShownCall:
        arguments = _object(view.call.function.arguments)
        result = _object(view.entry.content) if view.entry is not None else None
        change = self._change(view.call.function.name, arguments or {}, result)
        if result is not None:
            result = {name: value for name, value in result.items() if value not in (None, "", {}, [])}
            if view.entry is not None and view.entry.exit_code == result.get("exit_code"):
                result.pop("exit_code", None)  # it is in the call's heading
        if change is not None:
            result = {name: value for name, value in (result or {}).items() if name != "diff"}
            left = {name: value for name, value in (arguments or {}).items() if name == "path"}
            return ShownCall(
                [*self.fields(left), self._part("change", change, self._texts.diff)], self.fields(result)
            )
        return ShownCall(
            self.fields(arguments) if arguments is not None else None,
            self.fields(result) if result is not None else None,
        )

    def _change(
        self, tool: str, arguments: dict[str, JsonValue], result: dict[str, JsonValue] | None
    ) -> str | None:
        """What a call of a tool that edits files changes, as a diff; None for another tool."""
        match tool, arguments:
            case "write_file", {"path": str() as path, "content": str() as content}:
                before = self._written.get(path)
                if result is not None and "error" not in result:
                    self._written[path] = content
                return unified(path, before, content) if before != content else None
            case "patch", _:
                # The texts of the files that it has changed are known no longer.
                self._written.clear()
                made = result.get("diff") if result is not None else None
                return made if made and isinstance(made, str) else _asked_change(arguments)
        return None

    def fields(self, fields: Mapping[str, JsonValue]) -> list[Part]:
        """The fields of any JSON object."""
        path = fields.get("path")
        return [
            self._field(name, value, path if isinstance(path, str) else "") for name, value in fields.items()
        ]

    def _field(self, name: str, value: JsonValue, path: str) -> Part:
        if isinstance(value, str):
            text, language = value, LANGUAGES.get(name, path if name == "content" else "")
        else:
            flat = json.dumps(value, ensure_ascii=False)
            text = flat if len(flat) <= SHORT else json.dumps(value, ensure_ascii=False, indent=2)
            language = "json"
        if "\n" not in text and len(text) <= SHORT and name not in LANGUAGES:
            return Part(name, short=text)
        if isinstance(value, str) and value.startswith(("diff --git ", "--- a/")):
            return self._part(name, text, self._texts.diff)
        return self._part(name, text, lambda shown: self._texts.code(shown, language) if language else None)

    def _part(self, name: str, text: str, render: Callable[[str], Markup | None]) -> Part:
        beginning = clipped(text)
        return Part(name, shown=render(beginning), text=beginning, characters=len(text))


def _asked_change(arguments: dict[str, JsonValue]) -> str | None:
    """The change that a call of `patch` asked for, which wasn't made, or not yet."""
    match arguments:
        case {"path": str() as path, "old_string": str() as old, "new_string": str() as new}:
            return unified(path, old, new)
        case {"patch": str() as patch}:
            return patch
    return None


def exit_word(code: int) -> str:
    """What an exit code says, in a word or three."""
    return EXIT_CODES.get(code, "failed")


def _object(text: str) -> dict[str, JsonValue] | None:
    try:
        value: JsonValue = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None
