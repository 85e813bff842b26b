"""Log lines that say which rollout they are about."""

import contextvars
import json
import logging
import sys
from typing import Literal

subject: contextvars.ContextVar[str] = contextvars.ContextVar("subject", default="-")
"""The run, group or rollout that the running code works for."""

LogFormat = Literal["text", "json"]


class _Subject(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        """A workflow's own lines carry its id; activities set the subject."""
        info = getattr(record, "temporal_workflow", None)
        record.subject = info["workflow_id"] if isinstance(info, dict) else subject.get()
        return True


class _Json(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": self.formatTime(record),
            "level": record.levelname,
            "logger": record.name,
            "subject": getattr(record, "subject", "-"),
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False)


def configure(form: LogFormat, process: str) -> None:
    """Log to standard error, one line an event; `process` names the process in each."""
    handler = logging.StreamHandler(sys.stderr)
    handler.addFilter(_Subject())
    text = logging.Formatter(f"%(asctime)s %(levelname)s {process} [%(subject)s] %(name)s: %(message)s")
    handler.setFormatter(_Json() if form == "json" else text)
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
    # What these say of every request and every failed attempt, Clotho says itself, with the rollout's name.
    for chatty, level in (
        ("httpx", logging.WARNING),
        ("httpx2", logging.WARNING),
        ("temporalio.activity", logging.ERROR),
    ):
        logging.getLogger(chatty).setLevel(level)
