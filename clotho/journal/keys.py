"""Checks of journal keys, made by every store: no key reaches outside of it."""

from clotho.errors import InvalidInput

MOST_BYTES, MOST_SEGMENT_BYTES = 1_024, 255
"""Limits of a key in S3, and of a file's name."""


def checked_key(key: str) -> str:
    """Return `key` if it is names joined by slashes; raises InvalidInput for anything else."""
    try:
        names = key.encode().split(b"/")
    except UnicodeEncodeError:
        raise _refused(key, "it can't be encoded") from None
    if any(name in (b"", b".", b"..") for name in names):
        raise _refused(key, "every part between slashes must be a name")
    if b"\0" in key.encode():
        raise _refused(key, "it holds a NUL")
    if len(key.encode()) > MOST_BYTES or max(map(len, names)) > MOST_SEGMENT_BYTES:
        raise _refused(key, f"it, or a name in it, is longer than {MOST_BYTES} or {MOST_SEGMENT_BYTES} bytes")
    return key


def checked_prefix(prefix: str) -> str:
    """Return `prefix` if it is a key and a slash; raises InvalidInput for anything else."""
    if not prefix.endswith("/"):
        raise _refused(prefix, "a prefix ends in a slash")
    checked_key(prefix[:-1])
    return prefix


def _refused(key: str, why: str) -> InvalidInput:
    return InvalidInput(f"{key[:200]!r} is no key of a store: {why}")
