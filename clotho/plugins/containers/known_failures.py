"""A table of failures of engines and registries, by their words, which are all that they give.

The first row that has a phrase of the failure decides. It tells whether the same request may succeed later, and
what to do where it can't. Phrases match whole words: a repository may be named `connection-pool`, and a digest may
hold 404 by chance.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from clotho.errors import ClothoError, InvalidInput, SandboxUnavailable
from clotho.plugins.containers.holdings import OF_THIS_HOST


class Request(StrEnum):
    """The kind of request to an engine."""

    PULL = "pull"
    BUILD = "build"
    OTHER = "other"


@dataclass(frozen=True)
class KnownFailure:
    words: re.Pattern[str]
    passes: bool
    advice: str = ""
    """Advice on a failure that stays."""
    requests: tuple[Request, ...] = tuple(Request)


def _row(
    *phrases: str, passes: bool = False, advice: str = "", requests: tuple[Request, ...] = tuple(Request)
) -> KnownFailure:
    """Phrases are regular expressions of whole words, none of which belongs to the name of an image."""
    words = re.compile(rf"(?<![\w/.:@-])(?:{'|'.join(phrases)})(?![\w/@-])")
    return KnownFailure(words, passes, advice, requests)


NO_GPUS = (
    "the container engine can't give sandboxes GPUs (gpus), which takes Docker and NVIDIA's container toolkit"
)
ASKED_OF_A_REGISTRY = (Request.PULL, Request.BUILD)
KNOWN = (
    _row(
        "could not select device driver",
        advice=NO_GPUS,
    ),
    _row(
        "invalid reference format",
        "must be lowercase",
        "repository name must not be more than",
        advice="an image is named [registry/]name[:tag] or [registry/]name@sha256:digest, in small letters",
    ),
    _row(
        'runtime "[^"]*" not found',
        "invalid runtime name",
        advice="install the runtime on the engine's host, or leave out `runtime`",
    ),
    _row(
        "while running runtime: exit status",
        "returned a non-zero code",
        "did not complete successfully",
        advice="mend the Dockerfile's command",
        requests=(Request.BUILD,),
    ),
    KnownFailure(
        # no `_row`, whose phrases match nothing within a name
        re.compile(f"//{OF_THIS_HOST}"),
        passes=False,
        advice=f"no registry has images of {OF_THIS_HOST}: build or import it on the engine's host",
        requests=ASKED_OF_A_REGISTRY,
    ),
    _row(
        *("toomanyrequests:", "too many requests", "no space left"),
        *("dial tcp", "proxyconnect tcp", "i/o timeout", "tls handshake timeout", "client.timeout exceeded"),
        *("connection refused", "connection reset", "timed out"),
        *("context deadline exceeded", "request canceled", ": eof", "unexpected eof"),
        *("internal server error", "bad gateway", "service unavailable", "gateway timeout"),
        passes=True,
        requests=ASKED_OF_A_REGISTRY,
    ),
    _row(
        *(
            "manifest unknown",
            "name unknown",
            "no such image",
            "does not exist",
            "404 \\(?not found",
            "not found:",
        ),
        *(
            "status(?: code)?:? 404",
            "access denied",
            "access to the resource is denied",
            "denied:",
            "unauthorized",
        ),
        *("authentication required", "short-name", "no matching manifest", "no image found in"),
        advice="check its name and tag, and the engine's login to its registry",
        requests=(Request.PULL,),
    ),
)
OTHERWISE_PASSES: Mapping[Request, bool] = {Request.PULL: True, Request.BUILD: False, Request.OTHER: True}
"""What is taken of a failure that no row knows: most that goes wrong in a build is in its Dockerfile."""
_STEP = re.compile(r'building at step "(?:[^"\\]|\\.)*"')
"""Podman's quotation of a Dockerfile's line, which may have any words."""


def failure_of(subject: str, said: str, request: Request = Request.OTHER) -> ClothoError:
    """The error of a failed request: InvalidInput, with what to do, for what stays as it is."""
    known = _known(said, request)
    if OTHERWISE_PASSES[request] if known is None else known.passes:
        return SandboxUnavailable(f"{subject}: {said}")
    advice = f" ({known.advice})" if known is not None and known.advice else ""
    return InvalidInput(f"{subject}: {said}{advice}")


def _known(said: str, request: Request) -> KnownFailure | None:
    words = _STEP.sub("", said.lower())
    return next((each for each in KNOWN if request in each.requests and each.words.search(words)), None)
