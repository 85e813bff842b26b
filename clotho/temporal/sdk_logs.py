"""Python's logging takes the lines of the SDK's core, and gives them this process's name and format."""

import logging

from temporalio.runtime import LogForwardingConfig, LoggingConfig

LONG_TASK = "[TMPRL1104]"
"""Code of the line for a workflow's task that takes more than 5 s: those do in which quick turns are sampled."""

core = logging.getLogger("temporalio.core")


def sdk_logging() -> LoggingConfig:
    """Log what the SDK's core logs by default, without lines for long tasks."""
    core.addFilter(_is_telling)
    forwarding = LogForwardingConfig(core, append_target_to_name=False, prepend_target_on_message=False)
    return LoggingConfig(filter=LoggingConfig.default.filter, forwarding=forwarding)


def _is_telling(record: logging.LogRecord) -> bool:
    return not record.getMessage().startswith(LONG_TASK)
