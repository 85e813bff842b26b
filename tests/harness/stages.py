"""A stage for gateways without a workflow: turns are answered at once."""

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

from clotho.models.backend import SampledTurn, Usage
from clotho.models.messages import ChatMessage
from clotho.models.sampling import Sampling
from clotho.rollouts.agent_program import AnsweredTurn, Stage
from clotho.rollouts.asked import AskedEntry, AskedTools
from clotho.rollouts.turn import TurnEntry
from clotho.sandbox.backend import SandboxInstance


def turn_entry(text: str) -> TurnEntry:
    message = ChatMessage(role="assistant", content=text)
    sampled = SampledTurn(
        message=message,
        finish_reason="stop",
        usage=Usage(),
        model="m",
        sampling=Sampling(),
        started=0.0,
        seconds=0.0,
    )
    return TurnEntry(sampled=sampled)


@dataclass
class Turns:
    """A rollout's calls and turns, for one gateway after the other."""

    sandbox: SandboxInstance
    rollout: str = "r/g000000/r0"
    asked: dict[int, AskedEntry] = field(default_factory=dict)
    turns: dict[int, TurnEntry] = field(default_factory=dict)

    def stage(self, server: int) -> Stage:
        unused: Any = None
        return Stage(
            rollout=self.rollout,
            manifest=cast(Any, SimpleNamespace(model="m")),
            prompt=cast(Any, unused),
            sandbox=self.sandbox,
            lease=0,
            server=server,
            context_tokens=None,
            seconds_left=None,
            counted=tuple(self.turns),
            asked=self._asked,
            turns=self._turns,
            ask=self._ask,
            answer=self._answer,
        )

    async def _asked(self) -> dict[int, AskedEntry]:
        return dict(self.asked)

    async def _turns(self, numbers: list[int]) -> dict[int, TurnEntry]:
        return {number: self.turns[number] for number in numbers if number in self.turns}

    async def _ask(self, number: int, asked: AskedEntry, tools: AskedTools) -> int:
        self.asked[number] = asked
        return number

    async def _answer(self, turn: int) -> AnsweredTurn:
        return AnsweredTurn(self.turns.setdefault(turn, turn_entry(f"answer {turn}")))
