"""Whether an engine tells of an outage, or of what stays as it is: by its words, which are all that it gives."""

import re

from clotho.sandbox.containers.holdings import OF_THIS_HOST

NO_IMAGE = (
    "404",
    "not found",
    "manifest unknown",
    "denied",
    "unauthorized",
    "short-name",
    "invalid reference",
)
"""Marks of a registry's answer that stays the same."""
OF_A_PULL = (
    "toomanyrequests",
    "too many requests",
    "no space left",
    "timeout",
    "timed out",
    "connection",
    "internal server error",
    "bad gateway",
    "service unavailable",
)
"""Marks of one that doesn't, whatever else it says."""
OF_A_BUILD = (
    "toomanyrequests",
    "too many requests",
    "no space left on device",
    "dial tcp",
    "proxyconnect tcp",
    "i/o timeout",
    "tls handshake timeout",
    "connection refused",
    "connection reset",
    "context deadline exceeded",
    "request canceled",
    '": eof',
    "internal server error",
    "bad gateway",
    "service unavailable",
    "gateway timeout",
)
"""Marks that no mistake in a Dockerfile brings about."""
OF_A_COMMAND = (
    "while running runtime: exit status",
    "returned a non-zero code",
    "did not complete successfully",
)
"""Marks of a RUN whose command has failed."""
STEP = re.compile(r'building at step "(?:[^"\\]|\\.)*"')
"""Podman's quotation of a Dockerfile's line, which may have any words."""


def is_outage_of_pull(said: str) -> bool:
    """Whether a registry may answer otherwise later."""
    said = said.lower()
    return any(mark in said for mark in OF_A_PULL) or not any(mark in said for mark in NO_IMAGE)


def is_outage_of_build(said: str) -> bool:
    """Whether a build may succeed later: its registry can't be reached, or the engine's disk is full."""
    said = STEP.sub("", said.lower())
    if any(mark in said for mark in OF_A_COMMAND) or f"//{OF_THIS_HOST}" in said:
        return False
    return any(mark in said for mark in OF_A_BUILD)
