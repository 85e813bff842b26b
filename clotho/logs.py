"""Logging, with the run, group or rollout of each line."""

import contextvars
import logging
import sys
import textwrap
from datetime import UTC, datetime
from typing import Any, Literal

from pydantic import JsonValue

from clotho.escaping import for_line, for_terminal, json_line
from clotho.identifiers.ids import ids_in

NOTHING = "-"
subject: contextvars.ContextVar[str] = contextvars.ContextVar("subject", default=NOTHING)
"""The run, group or rollout that the running code works for."""

LogFormat = Literal["text", "json"]


class _Subject(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        """A workflow's own lines carry its id; activities set the subject."""
        info = getattr(record, "temporal_workflow", None)
        record.subject = info["workflow_id"] if isinstance(info, dict) else subject.get()
        return True


class _Text(logging.Formatter):
    """One line per event, whatever the message holds; a traceback follows, indented."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        return for_line(super().formatMessage(record))

    def formatException(self, ei: Any) -> str:
        return textwrap.indent(for_terminal(super().formatException(ei)), "    ")


class _Json(logging.Formatter):
    def __init__(self, process: str) -> None:
        super().__init__()
        self._process = process

    def format(self, record: logging.LogRecord) -> str:
        """One JSON object, with the ids of the run, group and rollout that the line is about."""
        line: dict[str, JsonValue] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "process": self._process,
            "logger": record.name,
            **ids_in(getattr(record, "subject", NOTHING)),
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json_line(line)


def configure(form: LogFormat, process: str) -> None:
    """Log to standard error; `process` names the process in each line."""
    handler = logging.StreamHandler(sys.stderr)
    # at the handler: a logger's filter doesn't see the records of loggers below it
    handler.addFilter(_Subject())
    text = _Text(f"%(asctime)s %(levelname)s {process} [%(subject)s] %(name)s: %(message)s")
    handler.setFormatter(_Json(process) if form == "json" else text)
    # force: without it this does nothing where a package has set up a handler already
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
    logging.captureWarnings(True)
    # Clotho logs requests and failed attempts itself, with the rollout's name.
    for chatty, level in (
        ("httpx", logging.WARNING),
        ("httpx2", logging.WARNING),
        ("temporalio.activity", logging.ERROR),
    ):
        logging.getLogger(chatty).setLevel(level)
