"""The interface of conversations with MCP servers, and how they fail."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Protocol

from pydantic import JsonValue

MOST_TOOLS = 256
MOST_MESSAGE_BYTES = 8 << 20
MOST_CALL_BYTES = 16 << 20
"""Bytes that a server may send for one call, notifications and log lines included."""


@dataclass(frozen=True)
class Definition:
    """A tool as its server defines it."""

    name: str
    description: str
    parameters: dict[str, JsonValue]


@dataclass(frozen=True)
class Answer:
    """The answer to a call, as text."""

    text: str
    failed: bool


class NotStarted(Exception):
    """A server didn't start, or doesn't speak MCP. `passing`: another attempt may find it well, after `wait`."""

    def __init__(self, message: str, passing: bool, wait: timedelta | None = None) -> None:
        super().__init__(message)
        self.passing = passing
        self.wait = wait


class NoAnswer(Exception):
    """A call has no answer. `made`: it may have had its effect; `outage`: the server can't be reached now.

    `wait` is the time that the server asks for before another attempt.
    """

    def __init__(
        self, message: str, made: bool = True, outage: bool = False, wait: timedelta | None = None
    ) -> None:
        super().__init__(message)
        self.made = made
        self.outage = outage
        self.wait = wait


class Refused(Exception):
    """The server answered that the call can't be made."""


class Session(Protocol):
    """A conversation with a server that has started."""

    @property
    def definitions(self) -> Sequence[Definition]: ...

    @property
    def ended(self) -> bool: ...

    async def call(self, tool: str, arguments: dict[str, JsonValue], seconds: float) -> Answer:
        """Make a call, once. Raises NoAnswer, and Refused."""

    async def close(self) -> None:
        """End the conversation, and with it a program that was started for it."""
