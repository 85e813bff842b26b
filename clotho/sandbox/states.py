"""The states of a job."""

from enum import StrEnum


class JobState(StrEnum):
    ABSENT = "absent"
    RUNNING = "running"
    EXITED = "exited"
    TIMEOUT = "timeout"
    OUTPUT_LIMIT = "output_limit"
    KILLED = "killed"
    LOST = "lost"
    """It was started by an instance that is gone, and left no result: whether it took effect is unknown."""
