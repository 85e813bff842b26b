"""What an agent's own program asked of the model, call by call, and the conversations that these calls are.

A program sends its whole conversation with each call. Here each keeps what is new in it: the turn whose
conversation it goes on from, how much of that it repeats, and the messages that follow. What is repeated goes to
the model as it was sampled, not as the program wrote it again: the tokens of a conversation stay those of the
model.
"""

from collections.abc import Mapping

from pydantic import JsonValue

from clotho.errors import JournalCorrupt
from clotho.frozen_model import FrozenModel
from clotho.models.messages import ChatMessage, ToolSchema
from clotho.rollouts.turn import TurnEntry


class AskedEntry(FrozenModel):
    """A call of the model by the agent's program, under the number of the turn that answers it."""

    call: str
    """The name of the call: equal calls of a program that starts anew have the same."""
    start: int = 0
    """The lease of the sandbox in which it was first made."""
    extends: int | None = None
    """The turn whose conversation it goes on from; None: it begins one."""
    kept: int = 0
    """Messages of that conversation, its answer included, that it repeats."""
    messages: tuple[ChatMessage, ...]
    """Those that follow."""
    tools: str
    """The digest under which its tools are kept."""
    aside: bool = False
    """Whether it is a call beside the task, such as for a title: no training data."""
    requested: dict[str, JsonValue] = {}
    """Parameters that the program asked for; the run's are sent."""


class AskedTools(FrozenModel):
    """The tools that calls offer to the model."""

    schemas: tuple[ToolSchema, ...]
    freeform: tuple[str, ...] = ()
    """Names of tools that the program takes plain text for: the model is offered one argument."""


def messages_asked(
    turn: int, asked: Mapping[int, AskedEntry], turns: Mapping[int, TurnEntry]
) -> tuple[ChatMessage, ...]:
    """The prompt of a turn that a program asked for. Raises JournalCorrupt where one that it extends is missing."""
    parts: list[tuple[ChatMessage, ...]] = []
    kept: int | None = None
    number: int | None = turn
    while number is not None:
        if (entry := asked.get(number)) is None:
            raise JournalCorrupt(f"turn {turn} goes on from {number}, which is missing")
        own: list[ChatMessage] = list(entry.messages)
        if number != turn:
            sampled = turns[number].sampled if number in turns else None
            if sampled is None:
                raise JournalCorrupt(f"turn {turn} goes on from {number}, which has no answer")
            own.append(sampled.message)
        before = entry.kept if entry.extends is not None else 0
        if kept is not None:
            own = own[: max(0, kept - before)]
        parts.append(tuple(own))
        kept = before if kept is None else min(kept, before)
        number = entry.extends
    return tuple(message for part in reversed(parts) for message in part)


def extends_whole(entry: AskedEntry, asked: Mapping[int, AskedEntry], turns: Mapping[int, TurnEntry]) -> bool:
    """Whether it repeats all of the conversation that it goes on from, the answer included."""
    if entry.extends is None:
        return False
    return entry.kept == len(messages_asked(entry.extends, asked, turns)) + 1
