"""Journal entries of a rollout as the conversation that they record."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Annotated

from pydantic import Field

from clotho.frozen_model import WHERE_SET, FrozenModel
from clotho.identifiers.ids import call_id
from clotho.identifiers.keys import asked_key, asked_tools_key, call_key, prompt_key, turn_key
from clotho.journal import Journal
from clotho.models.backend import PriorTurn
from clotho.models.messages import ChatMessage, ToolSchema
from clotho.rollouts.asked import (
    AskedEntry,
    AskedTools,
    extends_whole,
    messages_added,
    messages_asked,
    program_results,
)
from clotho.rollouts.call import CallEntry, ToolError
from clotho.rollouts.rollout import Prompt
from clotho.rollouts.turn import TurnEntry


class Step(FrozenModel):
    """A turn and the results of its tool calls, in order."""

    turn: TurnEntry
    calls: tuple[CallEntry, ...]
    asked: Annotated[AskedEntry | None, WHERE_SET] = None
    """The request of the agent's program; None in Clotho's own loop."""
    added: Annotated[tuple[ChatMessage, ...], Field(exclude=True)] = ()
    """Messages of that request, without results of an earlier step's calls."""


class Transcript(FrozenModel):
    """The turns of a rollout so far."""

    prompt: Prompt
    steps: tuple[Step, ...]
    offered: Annotated[tuple[ToolSchema, ...], WHERE_SET] = ()
    """The tools that the agent's program offered to the model at its last turn; none in Clotho's own loop."""

    @property
    def messages(self) -> tuple[ChatMessage, ...]:
        """The conversation in the OpenAI wire format, as the next turn's prompt shows it."""
        return self.messages_before(len(self.steps))

    def messages_before(self, turn: int) -> tuple[ChatMessage, ...]:
        """The prompt of turn number `turn`, counted from 0."""
        if self.steps and self.steps[0].asked is not None:
            return self._asked_before(turn)
        messages = list(self.prompt.messages)
        for step in self.steps[:turn]:
            if step.turn.sampled is None:
                break
            messages.append(step.turn.sampled.message)
            messages += [
                ChatMessage(
                    role="tool", tool_call_id=call.id, name=call.function.name, content=result.content
                )
                # not strict: the last turn may have calls that aren't made yet
                for call, result in zip(step.turn.tool_calls, step.calls, strict=False)
            ]
        return tuple(messages)

    def _asked_before(self, turn: int) -> tuple[ChatMessage, ...]:
        """The prompt of a turn that a program asked for; after the last one, the conversation that it ends."""
        asked = {number: step.asked for number, step in enumerate(self.steps) if step.asked is not None}
        turns = {number: step.turn for number, step in enumerate(self.steps)}
        if turn < len(self.steps):
            return messages_asked(turn, asked, turns)
        if (last := _last_of_task(asked, turns)) is None:
            return self.prompt.messages
        sampled = turns[last].sampled
        assert sampled is not None
        return (*messages_asked(last, asked, turns), sampled.message)

    @property
    def prior(self) -> PriorTurn | None:
        """The last turn, if its tokens are known: what the next one extends."""
        sampled = self.steps[-1].turn.sampled if self.steps else None
        if sampled is None or sampled.tokens is None:
            return None
        before = self.messages_before(len(self.steps) - 1)
        return PriorTurn(messages=(*before, sampled.message), tokens=sampled.tokens)

    @property
    def tool_errors(self) -> tuple[ToolError, ...]:
        return tuple(call.error for step in self.steps for call in step.calls if call.error is not None)

    @property
    def reasoning(self) -> tuple[str | None, ...]:
        """The reasoning of each sampled turn, where the model has any."""
        return tuple(
            step.turn.sampled.message.reasoning_content
            for step in self.steps
            if step.turn.sampled is not None
        )


@dataclass(frozen=True)
class Conversation:
    """The inputs of a turn."""

    prompt: Prompt
    messages: tuple[ChatMessage, ...]
    prior: PriorTurn | None
    """The turn that it extends, if its tokens are known."""
    home: str
    """The queue of the process that may have begun the turn; empty: any."""
    tools: tuple[ToolSchema, ...] | None = None
    """The tools that a program offers to the model; None in Clotho's own loop, where the group has them."""


async def read_conversation(journal: Journal, rollout: str, turn: int) -> Conversation:
    """The conversation before turn number `turn` in Clotho's own loop; raises as `read_transcript`."""
    transcript = await read_transcript(journal, rollout, turn)
    home = transcript.steps[-1].turn.next_home if transcript.steps else ""
    return Conversation(transcript.prompt, transcript.messages, transcript.prior, home)


async def read_asked_conversation(journal: Journal, rollout: str, turn: int) -> Conversation:
    """The conversation in which an agent's program asked for a turn; raises as `read_transcript`."""
    prompt, asked_entries, turn_entries = await asyncio.gather(
        journal.read_required(prompt_key(rollout), Prompt),
        journal.read_many([asked_key(rollout, number) for number in range(turn + 1)], AskedEntry),
        journal.read_many([turn_key(rollout, number) for number in range(turn)], TurnEntry),
    )
    asked = {number: entry for number, entry in enumerate(asked_entries) if entry is not None}
    turns = {number: entry for number, entry in enumerate(turn_entries) if entry is not None}
    messages = messages_asked(turn, asked, turns)
    tools = await journal.read_required(asked_tools_key(rollout, asked[turn].tools), AskedTools)
    # only a conversation that is repeated whole has its tokens as the beginning of the prompt
    extended = turns.get(asked[turn].extends or 0) if extends_whole(asked[turn], asked) else None
    prior = None
    if extended is not None and extended.sampled is not None and extended.sampled.tokens is not None:
        kept = messages[: asked[turn].kept]
        prior = PriorTurn(messages=kept, tokens=extended.sampled.tokens)
    home = turns[max(turns)].next_home if turns else ""
    return Conversation(prompt, messages, prior, home, tools.schemas)


async def read_transcript(journal: Journal, rollout: str, turns: int) -> Transcript:
    """The first `turns` turns of `rollout` with their tool results, read in two parallel sweeps.

    If not all calls of the last turn have been made yet, it has fewer results than calls. Calls that a program
    made have the results that it sent to the model. Raises JournalCorrupt if the prompt or a turn is missing.
    """
    prompt, turn_entries = await asyncio.gather(
        journal.read_required(prompt_key(rollout), Prompt),
        journal.read_many([turn_key(rollout, turn) for turn in range(turns)], TurnEntry),
    )
    present = [turn for turn in turn_entries if turn is not None]
    if len(present) != turns:
        # raises, naming the first turn that is missing
        await journal.read_required(turn_key(rollout, turn_entries.index(None)), TurnEntry)
    if prompt.program is not None:
        return await _read_program_transcript(journal, rollout, prompt, present)
    keys = [
        call_key(rollout, call_id(number, index))
        for number, turn in enumerate(present)
        for index in range(len(turn.tool_calls))
    ]
    results = iter(await journal.read_many(keys, CallEntry))
    steps = [Step(turn=turn, calls=_leading(list(islice(results, len(turn.tool_calls))))) for turn in present]
    return Transcript(prompt=prompt, steps=tuple(steps))


async def _read_program_transcript(
    journal: Journal, rollout: str, prompt: Prompt, turns: Sequence[TurnEntry]
) -> Transcript:
    """The turns that an agent's program asked for, with the results of its own calls as it sent them."""
    keys = [asked_key(rollout, number) for number in range(len(turns))]
    entries = await journal.read_many(keys, AskedEntry)
    asked = {number: entry for number, entry in enumerate(entries) if entry is not None}
    numbered = dict(enumerate(turns))
    results = program_results(asked, numbered)
    steps = [
        Step(
            turn=turn,
            calls=results[number].entries if number in results else (),
            asked=asked.get(number),
            added=messages_added(asked[number], results) if number in asked else (),
        )
        for number, turn in numbered.items()
    ]
    last = _last_of_task(asked, numbered)
    tools = None
    if last is not None:
        tools = await journal.read(asked_tools_key(rollout, asked[last].tools), AskedTools)
    return Transcript(prompt=prompt, steps=tuple(steps), offered=tools.schemas if tools is not None else ())


def _last_of_task(asked: Mapping[int, AskedEntry], turns: Mapping[int, TurnEntry]) -> int | None:
    """The last turn that was answered, without those beside the task."""
    answered = (number for number, entry in asked.items() if not entry.aside and turns[number].sampled)
    return max(answered, default=None)


def _leading(calls: Sequence[CallEntry | None]) -> tuple[CallEntry, ...]:
    """The calls before the first that isn't made yet: of calls that run side by side, later ones may end first."""
    made: list[CallEntry] = []
    for call in calls:
        if call is None:
            break
        made.append(call)
    return tuple(made)
