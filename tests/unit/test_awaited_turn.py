"""The turn that a rollout waits for, while its sandbox has the effects of journalled calls alone."""

from pathlib import Path

from clotho.identifiers.keys import call_key, delegation_key, end_key, prompt_key, turn_key
from clotho.journal import Journal
from clotho.journal.folder import FilesystemStore
from clotho.models.messages import ChatMessage, FunctionCall, ToolCall
from clotho.rollouts.agent import planned_turn
from clotho.rollouts.call import CallEntry
from clotho.rollouts.delegation import DelegationEntry
from clotho.rollouts.outcome import Ending, Outcome
from clotho.rollouts.rollout import EndEntry, Prompt, RolloutSummary
from clotho.rollouts.turn import TurnEntry
from clotho.runs.sandbox_calls import awaited_turn

PARENT, CHILD = "waits/g000000/r0", "waits/g000000/r0.d0"


async def begin(journal: Journal, rollout: str) -> None:
    await journal.write(prompt_key(rollout), Prompt(item={}, messages=(), seed=0))


async def sample(journal: Journal, rollout: str, number: int, *tools: str) -> None:
    calls = tuple(ToolCall(id=name, function=FunctionCall(name=name, arguments="{}")) for name in tools)
    plan = (ChatMessage(role="assistant", tool_calls=calls),)
    await journal.write(turn_key(rollout, number), TurnEntry(sampled=planned_turn(plan, 0, "scripted")))


async def make(journal: Journal, rollout: str, call: str) -> None:
    entry = CallEntry(
        tool="terminal", content="{}", error=None, state={}, lease=0, started=0.0, seconds=1.0, changes=True
    )
    await journal.write(call_key(rollout, call), entry)


async def test_a_turn_is_awaited_once_every_call_of_the_last_one_has_its_result(tmp_path: Path) -> None:
    journal = Journal(FilesystemStore(tmp_path))
    await begin(journal, PARENT)
    assert await awaited_turn(journal, PARENT) == (0,)
    await sample(journal, PARENT, 0, "terminal", "terminal")
    assert await awaited_turn(journal, PARENT) is None
    await make(journal, PARENT, "0000-00")
    assert await awaited_turn(journal, PARENT) is None
    await make(journal, PARENT, "0000-01")
    assert await awaited_turn(journal, PARENT) == (1,)
    await sample(journal, PARENT, 1)
    assert await awaited_turn(journal, PARENT) is None  # it is verified


async def test_a_delegating_rollout_waits_for_the_turns_of_its_child(tmp_path: Path) -> None:
    journal = Journal(FilesystemStore(tmp_path))
    await begin(journal, PARENT)
    await sample(journal, PARENT, 0, "delegate_task")
    assert await awaited_turn(journal, PARENT) is None
    await journal.write(delegation_key(PARENT, "0000-00"), DelegationEntry(child=CHILD, shared=True))
    await begin(journal, CHILD)
    assert await awaited_turn(journal, PARENT) == (1, 0)
    await sample(journal, CHILD, 0, "terminal")
    assert await awaited_turn(journal, PARENT) is None
    await make(journal, CHILD, "0000-00")
    assert await awaited_turn(journal, PARENT) == (1, 1)
    ended = RolloutSummary(rollout=CHILD, ending=Ending(outcome=Outcome.COMPLETED), score=0.0)
    await journal.write(end_key(CHILD), EndEntry(summary=ended))
    assert await awaited_turn(journal, PARENT) is None  # the call itself is made
