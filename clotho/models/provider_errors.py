"""Model servers' refusals in Clotho's vocabulary: by HTTP status, headers and the wordings in use."""

import json
import math
import re
import time
from collections.abc import Callable, Mapping
from datetime import timedelta
from email.utils import parsedate_to_datetime

from clotho.errors import ClothoError, ContextOverflow, ModelRejected, ModelUnavailable
from clotho.escaping import truncate_middle

TEXT_CHARACTERS = 600
LONGEST_HEADER = 64
"""Characters of one that says how long to wait."""
THROTTLED = (429, 529)
"""Statuses of a server that has more requests than it takes; 503 is one if it says when to ask again."""
LONGEST_WAIT = timedelta(hours=1)
LONGEST_HINTED_WAIT = timedelta(minutes=1)
UNPAID_ACCOUNT_WAIT = timedelta(minutes=5)

OVERFLOW = re.compile(
    r"context_length_exceeded|exceed_context_size|string_above_max_length"
    r"|maximum (context|prompt|model) length|exceeds? the (model's |available )?(maximum )?context"
    r"|context (length is only|limit|window of this model)|(prompt|input) is too long"
    r"|(longer|greater) than the (maximum )?(model|context)|reduce the length of the (input )?messages"
    r"|exceeds the maximum number of tokens allowed|`inputs` (tokens|must have less)"
    r"|max_(completion_)?tokens must be at least 1, got (0|-)",
    re.IGNORECASE,
)
CONTEXT_LENGTH = re.compile(
    r"(?:maximum (?:context|model) length(?: is| of)|context length is only|model's context length) \(?(\d{1,9})",
    re.IGNORECASE,
)
NEVER_FITS_QUOTA = re.compile(r"request too large for", re.IGNORECASE)
UNPAID_ACCOUNT = re.compile(r"insufficient_quota|insufficient[ _](balance|credits)", re.IGNORECASE)


def refusal(
    status: int,
    headers: Mapping[str, str],
    body: str,
    max_tokens: int | None = None,
    redact: Callable[[str], str] = str,
) -> ClothoError:
    """The error that an HTTP answer of `status` stands for. Its text may quote the server.

    `redact` takes the key out, before the text is cut.

    An account without credit is an outage, though servers call it 429 or 402: rollouts wait, and go on when
    it is topped up, where failing would burn through a whole campaign within minutes.
    """
    said = redact(_said(body))
    text = f"the model server answers {status}: {truncate_middle(said, TEXT_CHARACTERS)}"
    if status == 402 or (status == 429 and UNPAID_ACCOUNT.search(said)):
        return ModelUnavailable(text, UNPAID_ACCOUNT_WAIT)
    # 429 as well, but no wait helps: the request alone is more than the quota of a minute
    if status in (413, 429) and NEVER_FITS_QUOTA.search(said):
        return ModelRejected(text)
    if status in (400, 413, 422) and OVERFLOW.search(said):
        return _overflow(said, text, max_tokens)
    # the statuses that OpenAI's own client repeats, and 425, too early
    if status in (408, 409, 425, 429) or status >= 500:
        asked = retry_after(status, headers)
        throttled = status in THROTTLED or (status == 503 and asked is not None)
        return ModelUnavailable(text, asked, throttled=throttled)
    # the server's text is left out: OpenAI's quotes parts of the key, which no redaction would find
    if status == 401:
        return ModelRejected("the model server answers 401: it does not accept the API key")
    return ModelRejected(text)


def _overflow(said: str, text: str, max_tokens: int | None) -> ClothoError:
    """A max_tokens that no prompt could fit beside is a mistake in the settings, not an outcome.

    Only where the server complains of it: some shorten it silently, and then the prompt alone was too long.
    """
    length = CONTEXT_LENGTH.search(said)
    if length is not None and max_tokens is not None and max_tokens >= int(length[1]):
        elsewhere = said[: length.start()] + said[length.end() :]
        if re.search(rf"\b{max_tokens}\b", elsewhere):
            return ModelRejected(f"max_tokens={max_tokens} leaves no room for a prompt: lower it. {text}")
    return ContextOverflow(text)


def _said(body: str) -> str:
    """The message of an error body with its code and type, as OpenAI, vLLM, SGLang or FastAPI put it."""
    try:
        parsed = json.loads(body)
    except (ValueError, RecursionError):
        return " ".join(body.split())
    error = parsed.get("error", parsed) if isinstance(parsed, dict) else parsed
    if not isinstance(error, dict):
        return str(error)
    message = error.get("message") or error.get("detail") or body
    labels = [str(error[name]) for name in ("code", "type") if error.get(name)]
    return f"{message} ({', '.join(labels)})" if labels else str(message)


def retry_after(status: int, headers: Mapping[str, str]) -> timedelta | None:
    """The time that the server asks to wait; None where it doesn't say.

    `Retry-After` (seconds or a date) is obeyed up to an hour, and ignored where it is no number. Of the
    x-ratelimit-reset headers, which say when a limit is wholly free again, the longest counts, up to a minute.
    """
    asked = _seconds(headers.get("retry-after-ms"), unit=0.001) or _retry_after_header(headers)
    if asked is not None:
        return _wait(asked, LONGEST_WAIT)
    if status != 429:
        return None
    resets = [
        _reset(headers.get(f"x-ratelimit-reset{limit}"))
        # only limits that are used up are waited for
        for limit in ("", "-requests", "-tokens")
        if headers.get(f"x-ratelimit-remaining{limit}", "0") == "0"
    ]
    longest = max((seconds for seconds in resets if seconds is not None), default=0.0)
    return _wait(longest, LONGEST_HINTED_WAIT)


def _wait(seconds: float, longest: timedelta) -> timedelta | None:
    return timedelta(seconds=min(seconds, longest.total_seconds())) if seconds > 0 else None


def _retry_after_header(headers: Mapping[str, str]) -> float | None:
    value = headers.get("retry-after")
    if value is None:
        return None
    seconds = _seconds(value)
    if seconds is not None:
        return seconds
    try:
        return parsedate_to_datetime(value).timestamp() - time.time()
    except (ValueError, OverflowError):
        return None


DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")
UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}


def _reset(value: str | None) -> float | None:
    """Seconds until a limit resets: said as `6m0s`, in seconds, or as Unix time in (milli)seconds."""
    seconds = _seconds(value)
    if seconds is None:
        # cut first: the header is the server's, and may be of any length
        parts = DURATION.findall((value or "")[:LONGEST_HEADER])
        return sum(float(amount) * UNITS[unit] for amount, unit in parts) if parts else None
    # no limit takes 30 years to reset: such numbers are Unix times, and 1e11 of seconds would be the year 5138
    if seconds > 1e11:
        return seconds / 1000 - time.time()
    return seconds - time.time() if seconds > 1e9 else seconds


def _seconds(value: str | None, unit: float = 1.0) -> float | None:
    try:
        seconds = float(value) * unit if value is not None else math.nan
    except ValueError:
        return None
    return seconds if math.isfinite(seconds) else None
