"""The journalled calls made in a sandbox: of the rollout that holds it, and of children that share it."""

from dataclasses import dataclass

from clotho.identifiers.ids import call_id, place_of
from clotho.identifiers.keys import delegation_key, prompt_key, turn_prefix
from clotho.journal import Journal
from clotho.models.messages import ToolCall
from clotho.rollouts.call import CallEntry
from clotho.rollouts.delegation import DelegationEntry
from clotho.rollouts.rollout import Prompt
from clotho.rollouts.transcript import read_transcript
from clotho.runs.rollouts import read_end
from clotho.tools import delegate_task


@dataclass(frozen=True)
class JournalledCall:
    """A journalled call that ran in a sandbox."""

    call: str
    """Its place in the sandbox."""
    asked: ToolCall
    entry: CallEntry


async def calls_in_sandbox(journal: Journal, owner: str, turns: int) -> list[JournalledCall]:
    """The calls in the sandbox of `owner`, which has taken so many turns, in the order in which they were made."""
    return await _calls_of(journal, owner, owner, turns)


async def awaited_turn(journal: Journal, rollout: str) -> tuple[int, ...] | None:
    """The number of the turn that a rollout waits for, and after it that of a child at work in its sandbox.

    None while a call is under way, and where no turn may follow. While a turn is awaited, the sandbox is idle, with
    the effects of journalled calls alone.
    """
    if (await journal.read_required(prompt_key(rollout), Prompt)).program is not None:
        return None  # it is at work whatever it waits for
    number = len(await journal.keys(turn_prefix(rollout)))
    if number == 0:
        return (0,)
    (last,) = (await read_transcript(journal, rollout, number)).steps[-1:]
    asked, made = last.turn.tool_calls, len(last.calls)
    if made < len(asked) and asked[made].function.name == delegate_task.NAME:
        begun = await journal.read(delegation_key(rollout, call_id(number - 1, made)), DelegationEntry)
        if begun is None or begun.child is None or await read_end(journal, begun.child) is not None:
            return None
        if not begun.shared:
            return (number,)
        inner = await awaited_turn(journal, begun.child)
        return None if inner is None else (number, *inner)
    return (number,) if asked and made == len(asked) else None


async def _calls_of(journal: Journal, owner: str, rollout: str, turns: int) -> list[JournalledCall]:
    transcript = await read_transcript(journal, rollout, turns)
    found: list[JournalledCall] = []
    for number, step in enumerate(transcript.steps):
        # The first call without a result may be one whose child is at work.
        for index, asked in enumerate(step.turn.tool_calls[: len(step.calls) + 1]):
            call = call_id(number, index)
            if asked.function.name == delegate_task.NAME:
                found += await _calls_of_child(journal, owner, rollout, call)
            elif index < len(step.calls) and step.calls[index].lease is not None:
                found.append(JournalledCall(place_of(owner, rollout, call), asked, step.calls[index]))
    return found


async def _calls_of_child(journal: Journal, owner: str, rollout: str, call: str) -> list[JournalledCall]:
    begun = await journal.read(delegation_key(rollout, call), DelegationEntry)
    if begun is None or begun.child is None or not begun.shared:
        return []
    end = await read_end(journal, begun.child)
    turns = end.summary.turns if end else len(await journal.keys(turn_prefix(begun.child)))
    return await _calls_of(journal, owner, begun.child, turns)
