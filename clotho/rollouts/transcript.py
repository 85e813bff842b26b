"""Journal entries of a rollout as the conversation that they record."""

import asyncio
from collections.abc import Sequence
from itertools import islice

from clotho.frozen_model import FrozenModel
from clotho.identifiers.ids import call_id
from clotho.identifiers.rollout_keys import call_key, prompt_key, turn_key
from clotho.journal import Journal
from clotho.models.backend import PriorTurn
from clotho.models.messages import ChatMessage
from clotho.rollouts.call import CallEntry, ToolError
from clotho.rollouts.rollout import Prompt
from clotho.rollouts.turn import TurnEntry


class Step(FrozenModel):
    """A turn and the results of its tool calls, in order."""

    turn: TurnEntry
    calls: tuple[CallEntry, ...]


class Transcript(FrozenModel):
    """The turns of a rollout so far."""

    prompt: Prompt
    steps: tuple[Step, ...]

    @property
    def messages(self) -> tuple[ChatMessage, ...]:
        """The conversation in the OpenAI wire format, as the next turn's prompt shows it."""
        return self.messages_before(len(self.steps))

    def messages_before(self, turn: int) -> tuple[ChatMessage, ...]:
        """The prompt of turn number `turn`, counted from 0."""
        messages = list(self.prompt.messages)
        for step in self.steps[:turn]:
            if step.turn.sampled is None:
                break
            messages.append(step.turn.sampled.message)
            messages += [
                ChatMessage(
                    role="tool", tool_call_id=call.id, name=call.function.name, content=result.content
                )
                for call, result in zip(step.turn.tool_calls, step.calls, strict=False)
            ]
        return tuple(messages)

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


async def read_transcript(journal: Journal, rollout: str, turns: int) -> Transcript:
    """The first `turns` turns of `rollout` with their tool results, read in two parallel sweeps.

    If not all calls of the last turn have been made yet, it has fewer results than calls. Raises JournalCorrupt
    if the prompt or a turn is missing.
    """
    prompt, turn_entries = await asyncio.gather(
        journal.read_required(prompt_key(rollout), Prompt),
        journal.read_many([turn_key(rollout, turn) for turn in range(turns)], TurnEntry),
    )
    present = [turn for turn in turn_entries if turn is not None]
    if len(present) != turns:
        await journal.read_required(turn_key(rollout, turn_entries.index(None)), TurnEntry)
    keys = [
        call_key(rollout, call_id(number, index))
        for number, turn in enumerate(present)
        for index in range(len(turn.tool_calls))
    ]
    results = iter(await journal.read_many(keys, CallEntry))
    steps = [Step(turn=turn, calls=_leading(list(islice(results, len(turn.tool_calls))))) for turn in present]
    return Transcript(prompt=prompt, steps=tuple(steps))


def _leading(calls: Sequence[CallEntry | None]) -> tuple[CallEntry, ...]:
    """The calls made so far: they run in order, so the first gap is the end."""
    made: list[CallEntry] = []
    for call in calls:
        if call is None:
            break
        made.append(call)
    return tuple(made)
