"""What an agent's own program asked of the model, call by call, and the conversations that these calls are.

A program sends its whole conversation with each call. The entry of a call keeps what is new in it: the turn whose
conversation it goes on from, how much of that it repeats, and the messages that follow. The model reads repeated
messages as it sampled them, not as the program wrote them again: a conversation keeps the tokens of the model.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass

from pydantic import JsonValue

from clotho.errors import JournalCorrupt
from clotho.frozen_model import FrozenModel
from clotho.models.messages import ChatMessage, ToolSchema
from clotho.rollouts.call import CallEntry
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
    """The messages that follow."""
    tools: str
    """The digest under which its tools are kept."""
    aside: bool = False
    """Whether it is a call beside the task, such as for a title: no training data."""
    requested: dict[str, JsonValue] = {}
    """Parameters that the program asked for; the run's are sent."""
    worked: float = 0.0
    """Seconds that the program had worked by itself before, in this start."""


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
        # `kept` counts from the conversation's first message, of which this turn added those after `before`
        if kept is not None:
            own = own[: max(0, kept - before)]
        parts.append(tuple(own))
        kept = before if kept is None else min(kept, before)
        number = entry.extends
    return tuple(message for part in reversed(parts) for message in part)


def extends_whole(entry: AskedEntry, asked: Mapping[int, AskedEntry]) -> bool:
    """Whether it repeats all of the conversation that it goes on from, the answer included."""
    if entry.extends is None or (before := asked.get(entry.extends)) is None:
        return False
    return entry.kept == (before.kept if before.extends is not None else 0) + len(before.messages) + 1


@dataclass(frozen=True)
class ProgramResults:
    """Results of a turn's tool calls, as the agent's program sent them."""

    of_turn: int
    sent_at: int
    """The turn whose call sent them."""
    messages: tuple[ChatMessage, ...]
    entries: tuple[CallEntry, ...]


def program_results(
    asked: Mapping[int, AskedEntry], turns: Mapping[int, TurnEntry]
) -> dict[int, ProgramResults]:
    """Turn -> results of its tool calls, from the first call that goes on from the whole of its conversation.

    A program makes its tool calls by itself: how long they took, or whether they failed, it doesn't tell.
    """
    found: dict[int, ProgramResults] = {}
    for number, entry in sorted(asked.items()):
        if entry.extends not in found and (results := results_sent(number, asked, turns)) is not None:
            found[results.of_turn] = results
    return found


def results_sent(
    number: int, asked: Mapping[int, AskedEntry], turns: Mapping[int, TurnEntry]
) -> ProgramResults | None:
    """The tool results that a call sends for the turn it goes on from, up to the first that is missing."""
    entry = asked[number]
    if (before := entry.extends) is None or before not in turns or not extends_whole(entry, asked):
        return None
    told = {message.tool_call_id: message for message in entry.messages if message.role == "tool"}
    messages, entries = list[ChatMessage](), list[CallEntry]()
    for call in turns[before].tool_calls:
        if (message := told.get(call.id)) is None:
            break
        messages.append(message)
        entries.append(_program_call(call.function.name, message))
    return ProgramResults(before, number, tuple(messages), tuple(entries)) if messages else None


def _program_call(tool: str, result: ChatMessage) -> CallEntry:
    content = result.content if isinstance(result.content, str) else json.dumps(result.content or "")
    return CallEntry(
        tool=tool, content=content, error=None, state={}, lease=None, started=0.0, seconds=0.0, changes=False
    )


def messages_added(entry: AskedEntry, results: Mapping[int, ProgramResults]) -> tuple[ChatMessage, ...]:
    """The messages of a call, without the tool results of the turn that it goes on from."""
    found = results.get(entry.extends) if entry.extends is not None else None
    shown = found.messages if found is not None else ()
    return tuple(message for message in entry.messages if message not in shown)


def is_first_of_start(number: int, asked: Mapping[int, AskedEntry]) -> bool:
    """Whether a call is the first one after its program was started anew."""
    return asked[number].start > max((entry.start for at, entry in asked.items() if at < number), default=0)


def asked_text(number: int, asked: Mapping[int, AskedEntry]) -> str:
    """How a call goes on from earlier ones, where it doesn't just go on from the last; else empty."""
    entry, told = asked[number], list[str]()
    if is_first_of_start(number, asked):
        told.append(f"the program was started anew, in sandbox {entry.start}: new calls from here on")
    if entry.aside:
        told.append("beside the task: no training data")
    if entry.extends is None:
        if number and not entry.aside:
            told.append("begins another conversation")
    elif not extends_whole(entry, asked):
        told.append(f"repeats {entry.kept} messages of the conversation of turn {entry.extends}")
    elif entry.extends != number - 1:
        told.append(f"goes on from turn {entry.extends}")
    return "; ".join(told)
