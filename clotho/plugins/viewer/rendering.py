"""Templates, and how values are written in them. Everything is escaped; control characters are made visible."""

import json
from collections import defaultdict
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.responses import HTMLResponse

from clotho.escaping import for_terminal
from clotho.plugins.viewer.calls import Calls, exit_word
from clotho.plugins.viewer.markup import Texts, clipped
from clotho.plugins.viewer.timeline import KINDS
from clotho.runs.disturbances import Disturbance

FOLDER = Path(__file__).parent
MEANINGS = {
    Disturbance.SANDBOX_LOST: "Its sandbox was lost, and another one took its place.",
    Disturbance.RESTORED: "The new sandbox lacks processes or files of the lost one, or has other programs.",
    Disturbance.REPLAYED: "Commands were run again in the new sandbox, and ended as before; outputs may differ.",
    Disturbance.DIVERGED: "Commands run again in the new sandbox left other exit codes or files than before.",
    Disturbance.RESUMED: "A turn was interrupted while it was sampled, and continued from the tokens it had.",
    Disturbance.REPAIRED: "It failed for a reason outside of it, and went on from its last turn.",
    Disturbance.REPLACED: "It was begun from scratch in place of a sibling that had failed.",
    Disturbance.REWARD_ERROR: "Its score is 0 because the verifier failed.",
    Disturbance.VERIFIER_FAILED: "Its score is 0 because the agent made the verifier fail.",
    Disturbance.VERIFIED_AGAIN: "It was verified again from its last state, or another process took that over.",
    Disturbance.UNPROVED: "It lost sandboxes at one call, and nothing proves that its commands ended them.",
}
"""What disturbances of a rollout mean, for those who meet them on a page."""


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
            "reward_word": reward_word,
            "exit_word": exit_word,
            "counted": counted,
            "date": date,
            "dollars": dollars,
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
        """The page; its texts take up to some seconds of a thread."""
        texts = Texts()
        # by rollout: a comparison shows two, whose files are not the same
        calls = defaultdict[str, Calls](lambda: Calls(texts))
        return self._environment.get_template(template).render(texts=texts, calls=calls, **values)


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


def counted(value: int, noun: str) -> str:
    """A number of things: 1 turn, 2 turns."""
    return f"{value:,} {noun}{'' if value == 1 else 's'}"


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


def dollars(value: float) -> str:
    return f"${value:,.2f}" if value >= 1 or not value else f"${value:.2g}"


def date(seconds: float) -> str:
    return datetime.fromtimestamp(seconds).strftime("%Y-%m-%d %H:%M")


def clock(seconds: float) -> str:
    return datetime.fromtimestamp(seconds).strftime("%Y-%m-%d %H:%M:%S") if seconds else ""


def as_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def words(name: str) -> str:
    return name.replace("_", " ").replace("(", " (")


def reward_word(value: float) -> str:
    """What a reward says, beside its colour."""
    return "negative" if value < 0 else "zero" if not value else "partial" if value < 1 else "full"


def _visible(value: object) -> object:
    """Text with its control characters made visible; what is markup already stays."""
    return for_terminal(value) if type(value) is str else value
