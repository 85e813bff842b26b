"""The agent of a rollout: the model, or turns that are known before it starts."""

import time
from enum import StrEnum

from clotho.frozen_model import FrozenModel
from clotho.models.backend import SampledTurn, Usage
from clotho.models.messages import ChatMessage, FunctionCall, ToolCall
from clotho.models.sampling import Sampling


class AgentKind(StrEnum):
    MODEL = "model"
    ORACLE = "oracle"
    """Runs the solution that the environment has for the item."""
    NOP = "nop"
    """Does nothing."""
    REPLAY = "replay"
    """Makes the turns of another run's rollout again."""


class Agent(FrozenModel):
    """The agent of a run."""

    kind: AgentKind = AgentKind.MODEL
    replays: str | None = None
    """The run whose rollouts are replayed."""


Plan = tuple[ChatMessage, ...]
"""The assistant's messages of an agent that is no model, in order. After the last one it says that it is done."""
DONE = ChatMessage(role="assistant", content="Done.")
NO_PLAN: Plan = ()


def planned_call(tool: str, arguments: str) -> ChatMessage:
    """A turn that makes one tool call."""
    call = ToolCall(id="planned", function=FunctionCall(name=tool, arguments=arguments))
    return ChatMessage(role="assistant", tool_calls=(call,))


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
