"""A rollout of a harness as a store has it, written by hand: a side call, a branch, and a start anew."""

import json

from clotho.identifiers.ids import group_of, run_of
from clotho.identifiers.keys import (
    agent_key,
    asked_key,
    asked_tools_key,
    end_key,
    lease_key,
    prompt_key,
    reward_key,
    scored_key,
    turn_key,
)
from clotho.journal import Journal
from clotho.models.backend import SampledTurn, Usage
from clotho.models.messages import ChatMessage, FunctionCall, ToolCall
from clotho.models.sampling import Sampling
from clotho.rollouts.agent_program import ProgramEntry
from clotho.rollouts.asked import AskedEntry, AskedTools
from clotho.rollouts.group import GroupEntry
from clotho.rollouts.lease import Fidelity, LeaseEntry
from clotho.rollouts.outcome import Ending, Outcome
from clotho.rollouts.program_end import ProgramEnd
from clotho.rollouts.rollout import EndEntry, Prompt, RolloutSummary
from clotho.rollouts.turn import TurnEntry
from clotho.rollouts.verification import RewardEntry
from tests.harness.agent import TOOL
from tests.viewer.stored import write_run

ROLLOUT = "harnessed/g000000/r0"
TASK = "Make the tests pass."
MANNER = "You are a careful agent. " * 100
OUTPUT = '{"type":"turn.completed"}\n'
STARTED = 1_790_000_000.0


def user(text: str) -> ChatMessage:
    return ChatMessage(role="user", content=text)


def result(id: str, text: str) -> ChatMessage:
    return ChatMessage(role="tool", tool_call_id=id, content=text)


def answer(number: int, text: str | None, *commands: str) -> TurnEntry:
    calls = tuple(
        ToolCall(
            id=f"call{number}{at}",
            function=FunctionCall(name="terminal", arguments=json.dumps({"command": command})),
        )
        for at, command in enumerate(commands)
    )
    return TurnEntry(
        sampled=SampledTurn(
            message=ChatMessage(role="assistant", content=text, tool_calls=calls),
            finish_reason="tool_calls" if calls else "stop",
            usage=Usage(prompt_tokens=10, completion_tokens=5),
            model="scripted",
            sampling=Sampling(),
            started=STARTED + 3 * number,
            seconds=1.0,
        )
    )


TURNS = (
    answer(0, "I look.", "ls"),
    answer(1, "Tests that fail"),
    answer(2, None, "pytest -q", "git diff"),
    answer(3, "All of them pass."),
    answer(4, "It is done."),
)
SYSTEM = ChatMessage(role="system", content=MANNER)
ASKED = (
    AskedEntry(call="a-0", messages=(SYSTEM, user(f"{TASK} In /work.")), tools="of-task"),
    AskedEntry(call="b-0", messages=(user(f"A title for: {TASK}"),), tools="none", aside=True),
    AskedEntry(call="c-0", extends=0, kept=3, messages=(result("call00", "a.py"),), tools="of-task"),
    AskedEntry(
        call="d-0",
        start=1,
        extends=2,
        kept=5,
        messages=(result("call20", "2 passed"), result("call21", "+1 -1"), user("Say what you did.")),
        tools="of-task",
    ),
    AskedEntry(call="e-0", start=1, extends=2, kept=4, messages=(user("Sum it up."),), tools="of-task"),
)
END = ProgramEntry(
    end=ProgramEnd(exit_code=0, seconds=2.5), output=OUTPUT, calls=5, matched=3, diverged_at=3, repeated=1
)


async def write_harnessed(journal: Journal, rollout: str = ROLLOUT) -> None:
    await write_run(journal, run_of(rollout), 1)
    prompt = Prompt(item={"id": "item-0"}, messages=(user(TASK),), seed=0, program="codex")
    await journal.write(prompt_key(rollout), prompt)
    for number, (asked, turn) in enumerate(zip(ASKED, TURNS, strict=True)):
        await journal.write(asked_key(rollout, number), asked)
        await journal.write(turn_key(rollout, number), turn)
    await journal.write(asked_tools_key(rollout, "of-task"), AskedTools(schemas=(TOOL,)))
    await journal.write(asked_tools_key(rollout, "none"), AskedTools(schemas=()))
    lease = LeaseEntry(incarnation="i", queue="q", system="s", fidelity=Fidelity.EXACT)
    await journal.write(lease_key(rollout, 1), lease)
    await journal.write(agent_key(rollout, 1), END)


async def write_end(journal: Journal, rollout: str = ROLLOUT) -> None:
    await journal.write(
        reward_key(rollout),
        RewardEntry(score=1.0, breakdown={}, log="passed", lease=None, epoch=0, seconds=0.5),
    )
    summary = RolloutSummary(
        rollout=rollout,
        ending=Ending(outcome=Outcome.COMPLETED),
        score=1.0,
        turns=len(TURNS),
        sampled_tokens=25,
        active_seconds=7.5,
        losses=(Fidelity.EXACT,),
    )
    await journal.write(end_key(rollout), EndEntry(summary=summary))
    entry = GroupEntry(item={"id": "item-0"}, toolsets=(), siblings=(summary,))
    await journal.write(scored_key(group_of(rollout)), entry)
