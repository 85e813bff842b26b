"""Rollouts whose tasks other rollouts have delegated."""

from collections.abc import Sequence

from clotho.identifiers.keys import delegation_key, end_key
from clotho.journal import Journal
from clotho.models.messages import ChatMessage
from clotho.rollouts.delegation import DelegatedWork, DelegationEntry
from clotho.rollouts.rollout import EndEntry, RolloutSummary
from clotho.rollouts.transcript import Transcript, read_transcript
from clotho.runs.manifest import read_manifest
from clotho.tools.delegation import DelegatedTask

Descendant = tuple[RolloutSummary, Transcript]
NOTHING_SAID = "The other agent ended without a last message."


async def delegated_task(journal: Journal, rollout: str, call: str) -> tuple[DelegatedTask, str | None]:
    """The task that a call delegated, as its tool shows it, and the child that did it.

    Raises JournalCorrupt where the workflow hasn't run the child before.
    """
    entry = await journal.read_required(delegation_key(rollout, call), DelegationEntry)
    if entry.child is None:
        return DelegatedTask(refused=entry.refused), None
    end = await read_child_end(journal, entry.child)
    transcript = await read_transcript(journal, entry.child, end.turns)
    ending = end.ending
    task = DelegatedTask(
        status=ending.outcome, limit=ending.limit, turns=end.turns, said=last_words(transcript.messages)
    )
    return task, entry.child


async def delegated_work(journal: Journal, child: str) -> DelegatedWork:
    end = await read_child_end(journal, child)
    return DelegatedWork(
        # with what its own children used: a parent's limits bound all that it has begun
        sampled_tokens=end.sampled_tokens + end.delegated_tokens,
        active_seconds=end.active_seconds,
        prompt_tokens=end.prompt_tokens + end.delegated_prompt_tokens,
        cost=end.cost,
        calls=end.budgeted_calls,
        left=end.left,
    )


async def read_child_end(journal: Journal, child: str) -> RolloutSummary:
    return (await journal.read_required(end_key(child), EndEntry)).summary


def last_words(messages: Sequence[ChatMessage]) -> str:
    """The agent's last text; NOTHING_SAID if it has none."""
    for message in reversed(messages):
        if message.role == "assistant" and isinstance(message.content, str) and message.content.strip():
            return message.content.strip()
    return NOTHING_SAID


def children_of(transcript: Transcript) -> list[str]:
    """The children that have ended, in the order of the calls that began them."""
    return [call.child for step in transcript.steps for call in step.calls if call.child is not None]


async def all_descendants(journal: Journal, transcript: Transcript) -> list[Descendant]:
    """All descendants of a rollout with their transcripts, each child before its own children."""
    found: list[Descendant] = []
    for child in children_of(transcript):
        end = await read_child_end(journal, child)
        did = await read_transcript(journal, child, end.turns)
        found += [(end, did), *await all_descendants(journal, did)]
    return found


async def are_attributed(journal: Journal, run: str) -> bool:
    """Whether children's tokens are trained on with the rewards of the run's rollouts."""
    delegation = (await read_manifest(journal, run)).tool_settings.delegation
    return delegation is not None and delegation.attributed
