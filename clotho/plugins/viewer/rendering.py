"""Templates, and how values are written in them. Everything is escaped; control characters are made visible."""

import json
from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from pydantic import JsonValue
from starlette.responses import HTMLResponse

from clotho.escaping import for_terminal
from clotho.plugins.viewer.meanings import MEANINGS
from clotho.plugins.viewer.timeline import KINDS

FOLDER = Path(__file__).parent
CLIPPED_CHARACTERS = 12_000
"""Longer texts are shown up to here; their entries have all."""
CLIPPED_LINES = 400


class Pages:
    """The viewer's templates, with `facts` that every page shows."""

    def __init__(self, **facts: Any) -> None:
        self._environment = Environment(
            loader=FileSystemLoader(FOLDER / "templates"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
            finalize=_visible,
        )
        self._environment.filters |= {
            "number": number,
            "duration": duration,
            "score": score,
            "clock": clock,
            "clipped": clipped,
            "pretty": pretty,
            "result": result,
            "json": as_json,
            "words": words,
            "entry": entry_path,
        }
        self._environment.globals |= {
            "page": page_path,
            "confirm": confirm_path,
            "address": address,
            "kinds": KINDS,
            "meanings": MEANINGS,
            **facts,
        }

    def answer(self, template: str, status: int = 200, **values: Any) -> HTMLResponse:
        return HTMLResponse(self.text(template, **values), status)

    def text(self, template: str, **values: Any) -> str:
        return self._environment.get_template(template).render(**values)


def page_path(name: str) -> str:
    """The path of the page of a run, group or rollout."""
    return f"/r/{quote(name, safe='/~')}"


def confirm_path(operation: str, name: str) -> str:
    return f"/confirm/{operation}/{quote(name, safe='/~')}"


def entry_path(key: str) -> str:
    return f"/entry/{quote(key, safe='/~')}"


def address(path: str, values: Mapping[str, object] | None = None, **more: object) -> str:
    """The path with a query; values that are empty are left out."""
    query = {name: value for name, value in {**(values or {}), **more}.items() if value not in ("", None)}
    return f"{path}?{urlencode(query)}" if query else path


def number(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:,.1f}"


def score(value: float) -> str:
    return f"{value:.4g}"


def duration(seconds: float) -> str:
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 120:
        return f"{seconds:.1f} s"
    if seconds < 7_200:
        return f"{seconds / 60:.1f} min"
    return f"{seconds / 3600:.1f} h"


def clock(seconds: float) -> str:
    return datetime.fromtimestamp(seconds).strftime("%Y-%m-%d %H:%M:%S") if seconds else ""


def clipped(text: str) -> str:
    """The beginning of a long text."""
    cut = text[:CLIPPED_CHARACTERS]
    lines = cut.split("\n", CLIPPED_LINES)
    return "\n".join(lines[:CLIPPED_LINES])


def as_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def pretty(text: str) -> str:
    """JSON on several lines, whose texts have their line breaks; what is no JSON object, unchanged."""
    return _lines(text, lambda _: True)


def result(text: str) -> str:
    """A tool's result like `pretty`, without its empty fields."""
    return _lines(text, lambda value: value not in (None, ""))


def words(name: str) -> str:
    return name.replace("_", " ")


def _lines(text: str, kept: Callable[[JsonValue], bool]) -> str:
    try:
        value: JsonValue = json.loads(text)
        if not isinstance(value, dict) or not any(map(kept, value.values())):
            return text
        return "\n".join(_field(name, inner) for name, inner in value.items() if kept(inner))
    except (ValueError, RecursionError):
        return text


def _field(name: str, value: JsonValue) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return f"{name}:\n{text}" if "\n" in text else f"{name}: {text}"


def _visible(value: object) -> object:
    """Text with its control characters made visible; what is markup already stays."""
    return for_terminal(value) if type(value) is str else value
