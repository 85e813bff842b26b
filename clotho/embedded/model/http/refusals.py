"""Refusals of requests, as error bodies of the OpenAI API."""

from pydantic import ValidationError
from pydantic_core import ErrorDetails
from starlette.responses import JSONResponse, Response

from clotho.listeners.refused import Refused

MOST_COMPLAINTS = 4
MOST_SHOWN = 200
"""Characters of what a client sent."""


class Refusal(Exception):
    """A request that gets `status` and an error body instead of an answer."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        type: str = "invalid_request_error",
        param: str | None = None,
        code: str | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.body = {"error": {"message": message, "type": type, "param": param, "code": code}}

    def response(self) -> Response:
        return JSONResponse(self.body, self.status)


def invalid(error: ValidationError) -> Refusal:
    """The refusal of a malformed body; a value of several possible types has a complaint for each."""
    complaints = error.errors(include_url=False, include_input=False)
    first = complaints[0]
    return Refusal(
        400,
        "; ".join(_complaint(each) for each in complaints[:MOST_COMPLAINTS]),
        param=str(first["loc"][0]) if first["loc"] else None,
        code=first["type"],
    )


def _complaint(details: ErrorDetails) -> str:
    place = ".".join(map(str, details["loc"]))[:MOST_SHOWN]
    return ": ".join(filter(None, (place, details["msg"][:MOST_SHOWN])))


def engine_stopped() -> Refusal:
    return Refusal(
        503, "The model server stopped before the answer was complete.", type="service_unavailable"
    )


def refused(error: Refused) -> Refusal:
    """The refusal of a body that wasn't read. No prompt of that many bytes fits into a context."""
    too_large = error.status == 413
    return Refusal(
        error.status,
        f"The request is refused: {error.detail}.",
        code="context_length_exceeded" if too_large else "refused",
    )


def context_overflow(limit: int, length: int | str) -> Refusal:
    return Refusal(
        400,
        f"This model's maximum context length is {limit} tokens. However, your messages resulted in {length} "
        "tokens, which leaves no room for a completion. Please reduce the length of the messages.",
        param="messages",
        code="context_length_exceeded",
    )
