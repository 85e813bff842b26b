"""Tool results as JSON text."""

import json
from typing import Any

from clotho.sandbox.exhaustion import Exhausted
from clotho.tools.tool import ToolOutcome

INTERRUPTED = (
    "The call was interrupted and its answer is lost. It may have had its effect, so it wasn't made again: "
    "look before you repeat it."
)
"""Of a call that may be made only once, when an attempt at it was lost with its worker."""

RAN_OUT: dict[Exhausted, str] = {
    "memory": "The sandbox ran out of memory, and processes of this command were killed for it",
    "processes": "The sandbox reached its limit on processes: no more could be started",
    "disk": "The sandbox's disk is full, or a file reached the largest size allowed",
}


def text(**fields: Any) -> str:
    """A JSON object of `fields`, in their order."""
    return json.dumps(fields, ensure_ascii=False)


def answer(**fields: Any) -> ToolOutcome:
    """The outcome of a call that did what it should."""
    return ToolOutcome(content=text(**fields))


def problem(error: str, **fields: Any) -> ToolOutcome:
    """The outcome of a call that ran and found no way: the model reads why, and nothing counts as a tool error."""
    return ToolOutcome(content=text(**fields, error=error))


def refusal(error: str, **fields: Any) -> ToolOutcome:
    """The outcome of a call that can't be served: it counts as a tool error."""
    return ToolOutcome(content=text(**fields, error=error), error=error)
