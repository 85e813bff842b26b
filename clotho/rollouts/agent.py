"""The agent of a rollout: the model in Clotho's loop or a program's, or turns that are known before it starts."""

import json
import time
from enum import StrEnum
from typing import Annotated

from clotho.errors import InvalidInput
from clotho.frozen_model import WHERE_SET, FrozenModel
from clotho.models.backend import SampledTurn, Usage
from clotho.models.messages import ChatMessage, FunctionCall, ToolCall
from clotho.models.sampling import Sampling
from clotho.plugin import plugins


class AgentKind(StrEnum):
    MODEL = "model"
    PROGRAM = "program"
    """A program in the sandbox with a loop of its own, which a plugin knows: it asks the model for each turn."""
    ORACLE = "oracle"
    """Runs the solution that the environment has for the item."""
    NOP = "nop"
    """Does nothing."""
    REPLAY = "replay"
    """Makes the turns of another run's rollout again."""
    EMPTY = "empty"
    """Runs the solution, and empties the files that it wrote."""
    HUGE = "huge"
    """Runs the solution, and puts 32 MiB of digits into the files that it wrote."""
    FIFO = "fifo"
    """Runs the solution, and puts FIFOs in the place of the files that it wrote."""

    @property
    def has_model(self) -> bool:
        """Whether a model acts."""
        return self in (AgentKind.MODEL, AgentKind.PROGRAM)

    @property
    def runs_solution(self) -> bool:
        return self is AgentKind.ORACLE or self in SPOILERS


class Agent(FrozenModel):
    """The agent of a run."""

    kind: AgentKind = AgentKind.MODEL
    replays: str | None = None
    """The run whose rollouts are replayed."""
    program: Annotated[str | None, WHERE_SET] = None
    """The name of the program, as a plugin offers it."""


def agent_kind(name: str) -> AgentKind:
    """The kind of the agent that `--agent` names. Raises InvalidInput for a name that nothing has."""
    programs = sorted(program for plugin in plugins().values() for program in plugin.agents)
    if name in programs:
        return AgentKind.PROGRAM
    kinds = [kind.value for kind in AgentKind if kind is not AgentKind.PROGRAM]
    if name not in kinds:
        raise InvalidInput(f"no agent {name!r}: give {', '.join([*kinds, *programs])}")
    return AgentKind(name)


def trained_agent(name: str) -> Agent:
    """The agent of a run for training: the model in Clotho's loop, or a program. Raises InvalidInput for others."""
    kind = agent_kind(name)
    if not kind.has_model:
        raise InvalidInput(f"agent {name}: nothing can be trained on an agent that is no model")
    return Agent(kind=kind, program=name if kind is AgentKind.PROGRAM else None)


SPOILERS = {
    AgentKind.EMPTY: ': > "$file"',
    AgentKind.HUGE: 'yes 9 | tr -dc 9 | head -c 33554432 > "$file"',
    AgentKind.FIFO: 'rm -f "$file"; mkfifo "$file"',
}
"""Agents that leave an answer which a careless verifier can't read, by the command that they run on each file."""
MOST_SPOILED = 20
BEGUN = "/tmp/.solution-begun"


Plan = tuple[ChatMessage, ...]
"""The assistant's messages of an agent that is no model, in order. After the last one it says that it is done."""
DONE = ChatMessage(role="assistant", content="Done.")
NO_PLAN: Plan = ()


def planned_call(tool: str, arguments: str) -> ChatMessage:
    """A turn that makes one tool call."""
    call = ToolCall(id="planned", function=FunctionCall(name=tool, arguments=arguments))
    return ChatMessage(role="assistant", tool_calls=(call,))


def spoiling_call(kind: AgentKind, solution: ChatMessage, tool: str) -> ChatMessage:
    """The turn `solution`, after which a spoiler changes the files that are newer than the turn's beginning."""
    spoil = (
        f"find /work ~ -xdev -type f -newer {BEGUN} -not -path '*/.git/*' | head -n {MOST_SPOILED} | "
        f"while IFS= read -r file; do {SPOILERS[kind]}; done"
    )

    def call(id: str, command: str) -> ToolCall:
        return ToolCall(id=id, function=FunctionCall(name=tool, arguments=json.dumps({"command": command})))

    calls = (call("begin", f"touch {BEGUN}"), *solution.tool_calls, call("spoil", spoil))
    return solution.model_copy(update={"tool_calls": calls})


def planned_turn(plan: Plan, turn: int, agent: str) -> SampledTurn:
    """Turn number `turn` of a plan, as a model would have answered it: it has no tokens and costs none."""
    message = plan[turn] if turn < len(plan) else DONE
    return SampledTurn(
        message=message,
        finish_reason="tool_calls" if message.tool_calls else "stop",
        usage=Usage(),
        model=agent,
        sampling=Sampling(),
        started=time.time(),
        seconds=0.0,
    )
