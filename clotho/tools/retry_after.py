"""The `Retry-After` of an HTTP answer."""

from collections.abc import Mapping
from datetime import timedelta

LONGEST_WAIT = timedelta(hours=1)


def retry_after(headers: Mapping[str, str]) -> timedelta | None:
    """The time that an answer asks to wait, up to an hour; None where it names no seconds."""
    asked = headers.get("retry-after", "")
    # nine digits: timedelta raises OverflowError for many more
    return min(timedelta(seconds=int(asked[:9])), LONGEST_WAIT) if asked.isdecimal() else None
