"""A rollout: its request, its prompt, the state of its agent loop, and its end."""

from clotho.frozen_model import FrozenModel, Seconds
from clotho.models.messages import ChatMessage
from clotho.rollouts.call import CallResult
from clotho.rollouts.item import Item
from clotho.rollouts.lease import Fidelity, Lease
from clotho.rollouts.outcome import Ending, Limits
from clotho.rollouts.task_queues import TaskQueues
from clotho.rollouts.turn import TurnResult


class Totals(FrozenModel):
    """What a rollout has done, and what it took."""

    turns: int = 0
    tool_calls: int = 0
    tool_errors: int = 0
    resumed_turns: int = 0
    """Turns that were interrupted and went on from their tokens."""
    defective_calls: int = 0
    """Calls that were not run, or not as the model wrote them; each turn's entry says why."""
    prompt_tokens: int = 0
    sampled_tokens: int = 0
    active_seconds: Seconds = 0.0

    def after_turn(self, turn: TurnResult) -> "Totals":
        return self.model_copy(
            update={
                "turns": self.turns + 1,
                "resumed_turns": self.resumed_turns + turn.resumed,
                "defective_calls": self.defective_calls + turn.defective_calls,
                "sampled_tokens": self.sampled_tokens + turn.sampled_tokens,
                "prompt_tokens": self.prompt_tokens + turn.prompt_tokens,
                "active_seconds": self.active_seconds + turn.seconds,
            }
        )

    def after_call(self, call: CallResult) -> "Totals":
        return self.model_copy(
            update={
                "tool_calls": self.tool_calls + 1,
                "tool_errors": self.tool_errors + call.failed,
                "active_seconds": self.active_seconds + call.seconds,
            }
        )


class RolloutState(FrozenModel):
    """All that the agent loop remembers between steps."""

    totals: Totals = Totals()
    lease: Lease | None = None
    checkpoint: str | None = None
    """The call after which the sandbox was last checkpointed."""
    losses: tuple[Fidelity, ...] = ()
    """Of the sandboxes that followed lost ones, in their order."""
    model_queue: str | None = None
    """The queue of the process that samples this rollout's turns: a call in flight is found again only there."""
    tool_state: dict[str, str] = {}
    """Slot of state that tools keep between calls -> id of the call that last wrote it."""

    @property
    def turn(self) -> int:
        """The number of the next turn."""
        return self.totals.turns

    def after_turn(self, turn: TurnResult) -> "RolloutState":
        return self.model_copy(update={"totals": self.totals.after_turn(turn)})

    def after_call(self, call: CallResult) -> "RolloutState":
        return self.model_copy(
            update={
                "totals": self.totals.after_call(call),
                "tool_state": self.tool_state | dict.fromkeys(call.wrote_state, call.call),
                "checkpoint": call.call if call.checkpointed else self.checkpoint,
            }
        )

    def limit_met(self, limits: Limits) -> str | None:
        """The name of the first limit that leaves no room for another turn."""
        totals = self.totals
        spent: tuple[tuple[str, float, float | None], ...] = (
            ("max_turns", totals.turns, limits.max_turns),
            ("max_sampled_tokens", totals.sampled_tokens, limits.max_sampled_tokens),
            ("max_active_seconds", totals.active_seconds, limits.max_active_seconds),
        )
        return next((name for name, used, bound in spent if bound is not None and used >= bound), None)


class RolloutRequest(FrozenModel):
    run: str
    rollout: str
    environment: str
    limits: Limits
    task_queues: TaskQueues
    paused: bool = False
    """This and `state` are carried over a continue-as-new."""
    state: RolloutState | None = None


class RolloutSummary(Totals):
    """The end of a scored rollout, small enough for a workflow result."""

    rollout: str
    replacement_of: str | None = None
    """The sibling in whose stead it started from scratch. That favours short rollouts: it can be left out."""
    ending: Ending
    score: float
    reward_error: bool = False
    """The score is 0 because the verifier failed, as the run asks for: it can be left out."""
    losses: tuple[Fidelity, ...] = ()
    """How each sandbox that followed a lost one was made: leave out what isn't exact enough for you."""


class RolloutStart(FrozenModel):
    """Where a rollout begins, or begins again."""

    scored: RolloutSummary | None = None
    """What an earlier run of it came to."""
    model_queue: str | None = None
    """Of the process that samples its turns, where there are any left."""


class ConcludeRequest(FrozenModel):
    rollout: str
    ending: Ending
    totals: Totals
    losses: tuple[Fidelity, ...]


class Prompt(FrozenModel):
    """What a rollout starts from."""

    item: Item
    messages: tuple[ChatMessage, ...]
    seed: int
    workspace_files: dict[str, str] = {}
    """Path -> base64 content, put into the sandbox before the first command."""


class EndEntry(FrozenModel):
    """The end of a scored rollout."""

    summary: RolloutSummary
