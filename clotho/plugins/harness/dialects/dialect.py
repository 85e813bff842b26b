"""What the gateway asks of a wire format, and what all of them share."""

import json
from collections.abc import Iterator, Mapping
from typing import Literal, Protocol

from pydantic import JsonValue

from clotho.plugins.harness.dialects.canonical import Answer, Asked

ErrorKind = Literal["invalid_request", "context_overflow", "limit_reached", "not_found", "unauthorized"]


class Dialect(Protocol):
    """One API as its clients know it: requests are read, finished answers are written.

    `id` is the gateway's, from which all ids of an answer but those of tool calls derive: a repeated request gets
    the same bytes.
    """

    @property
    def path(self) -> str:
        """The path of its requests below /v1/."""

    @property
    def ping(self) -> bytes:
        """The event that keeps a client waiting for an answer."""

    @property
    def statuses(self) -> Mapping[ErrorKind, int]:
        """HTTP statuses at which this API's clients end rather than ask again."""

    def parse(self, body: bytes) -> Asked:
        """Read a request. Raises InvalidRequest."""

    def answer(self, answer: Answer, id: str, model: str) -> bytes:
        """The JSON body of a response."""

    def opening(self, id: str, model: str) -> bytes:
        """Events that may be sent before the answer is known."""

    def events(self, answer: Answer, id: str, model: str, opened: bool = False) -> Iterator[bytes]:
        """The response as server-sent events; those of `opening` are left out where it was `opened`."""

    def error(self, status: int, kind: ErrorKind, message: str) -> bytes:
        """The JSON body of an error."""

    def error_event(self, kind: ErrorKind, message: str, id: str, model: str) -> bytes:
        """The events that end a stream which has begun, where no answer will come."""

    def key(self, headers: Mapping[str, str]) -> str | None:
        """The API key of a request."""


def api_key(headers: Mapping[str, str]) -> str | None:
    """The key of either kind of header; their names' case doesn't matter."""
    found = {name.lower(): value.strip() for name, value in headers.items()}
    scheme, _, token = found.get("authorization", "").partition(" ")
    bearer = token.strip() if scheme.lower() == "bearer" else ""
    return found.get("x-api-key") or bearer or None


def json_bytes(value: Mapping[str, JsonValue]) -> bytes:
    """JSON in ASCII: some clients take U+2028 and its like for the end of an event's line."""
    return json.dumps(value, separators=(",", ":")).encode()


def server_sent(value: Mapping[str, JsonValue], event: str | None = None) -> bytes:
    name = f"event: {event}\n".encode() if event else b""
    return name + b"data: " + json_bytes(value) + b"\n\n"
