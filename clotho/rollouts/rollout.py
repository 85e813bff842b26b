"""A rollout: its request, its prompt, the state of its agent loop, and its end."""

import base64
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Annotated, Self

from clotho.frozen_model import WHERE_SET, FrozenModel, Seconds
from clotho.models.messages import ChatMessage
from clotho.rollouts.agent import Plan
from clotho.rollouts.budget import CALLS, Calls, Cost
from clotho.rollouts.call import CallResult
from clotho.rollouts.delegation import DelegatedPrompt, DelegatedWork, LeftSandbox, SharedSandbox
from clotho.rollouts.item import Item
from clotho.rollouts.lease import Fidelity, Lease
from clotho.rollouts.outcome import Ending, Limits
from clotho.rollouts.program_end import ProgramEnd
from clotho.rollouts.task_queues import TaskQueues
from clotho.rollouts.turn import TurnResult
from clotho.sandbox.item import ItemSandbox
from clotho.tools.shell import SLOT

NO_WORK = DelegatedWork(sampled_tokens=0, active_seconds=0.0)


class Totals(FrozenModel):
    """Counters of a rollout's work."""

    turns: int = 0
    tool_calls: int = 0
    tool_errors: int = 0
    resumed_turns: int = 0
    """Turns that were interrupted and continued from their tokens."""
    defective_calls: int = 0
    """Calls that were not run, or not as the model wrote them; each turn's entry says why."""
    prompt_tokens: int = 0
    sampled_tokens: int = 0
    delegated_tokens: Annotated[int, WHERE_SET] = 0
    """Tokens that children have sampled."""
    delegated_prompt_tokens: Annotated[int, WHERE_SET] = 0
    """Prompt tokens of children."""
    cost: Cost = 0.0
    """US dollars where the rollout has a budget of them, those of children included."""
    budgeted_calls: Calls = {}
    """Tool -> calls of it where the rollout has a budget of them, those of children included."""
    active_seconds: Seconds = 0.0
    """Seconds of model and tool calls, those of children included."""

    def after_turn(self, turn: TurnResult) -> "Totals":
        return self.model_copy(
            update={
                "turns": self.turns + 1,
                "resumed_turns": self.resumed_turns + turn.resumed,
                "defective_calls": self.defective_calls + turn.defective_calls,
                "sampled_tokens": self.sampled_tokens + turn.sampled_tokens,
                "prompt_tokens": self.prompt_tokens + turn.prompt_tokens,
                "active_seconds": self.active_seconds + turn.seconds,
                "cost": self.cost + turn.cost,
            }
        )

    def after_call(self, call: CallResult) -> "Totals":
        work = call.delegated or NO_WORK
        own = [call.budgeted] if call.budgeted is not None else []
        return self.model_copy(
            update={
                "tool_calls": self.tool_calls + 1,
                "tool_errors": self.tool_errors + call.failed,
                "delegated_tokens": self.delegated_tokens + work.sampled_tokens,
                "delegated_prompt_tokens": self.delegated_prompt_tokens + work.prompt_tokens,
                "cost": self.cost + work.cost,
                "budgeted_calls": dict(Counter(self.budgeted_calls) + Counter(own) + Counter(work.calls)),
                "active_seconds": self.active_seconds + call.seconds + work.active_seconds,
            }
        )

    @property
    def spent(self) -> dict[str, float]:
        """The spending by names of a budget's bounds, that of children included."""
        return {
            "prompt_tokens": self.prompt_tokens + self.delegated_prompt_tokens,
            "sampled_tokens": self.sampled_tokens + self.delegated_tokens,
            "cost": self.cost,
            "active_seconds": self.active_seconds,
            **{f"{CALLS}{tool}": calls for tool, calls in self.budgeted_calls.items()},
        }


class RolloutState(FrozenModel):
    """State of the agent loop between steps."""

    totals: Totals = Totals()
    lease: Lease | None = None
    checkpoint: str | None = None
    """The call after which the sandbox was last checkpointed."""
    losses: tuple[Fidelity, ...] = ()
    """Fidelity of each sandbox that replaced a lost one, in order."""
    model_queue: str | None = None
    """The queue of the process that samples this rollout's turns: a call in flight is found again only there."""
    program: Annotated[bool, WHERE_SET] = False
    """Whether a program acts, which asks for each turn."""
    asked: Annotated[tuple[int, ...], WHERE_SET] = ()
    """The turns that it has asked for and that count in the totals."""
    tool_state: dict[str, str] = {}
    """Slot of state that tools keep between calls -> id of the call that last wrote it."""

    @property
    def turn(self) -> int:
        """The number of the next turn."""
        return self.totals.turns

    def after_turn(self, turn: TurnResult) -> "RolloutState":
        return self.model_copy(update={"totals": self.totals.after_turn(turn)})

    def after_asked(self, number: int, turn: TurnResult) -> "RolloutState":
        """The state after a turn that the agent's program has asked for."""
        return self.after_turn(turn).model_copy(update={"asked": (*self.asked, number)})

    def after_program(self, end: ProgramEnd) -> "RolloutState":
        # turns that it asked for are counted by `after_asked`
        seconds = self.totals.active_seconds + end.seconds
        return self.model_copy(update={"totals": self.totals.model_copy(update={"active_seconds": seconds})})

    def after_call(self, place: str, call: CallResult) -> "RolloutState":
        """The state after the call at `place` in its sandbox."""
        state = self.model_copy(
            update={
                "totals": self.totals.after_call(call),
                "tool_state": self.tool_state | dict.fromkeys(call.wrote_state, place),
                "checkpoint": place if call.checkpointed else self.checkpoint,
            }
        )
        left = call.delegated.left if call.delegated is not None else None
        return state if left is None else state.after_child(left)

    def after_child(self, left: LeftSandbox) -> "RolloutState":
        """Go on from the checkpoint and in the shell that a child has left in a shared sandbox."""
        shell = {SLOT: left.shell} if left.shell is not None else {}
        return self.model_copy(update={"tool_state": self.tool_state | shell, "checkpoint": left.checkpoint})

    def left(self, lease: Lease | None, losses: tuple[Fidelity, ...]) -> LeftSandbox:
        """The sandbox as the parent of this rollout, which shares it, finds it."""
        shell = self.tool_state.get(SLOT)
        return LeftSandbox(lease=lease, losses=losses, checkpoint=self.checkpoint, shell=shell)

    def seconds_left(self, limits: Limits) -> float | None:
        """Seconds left of the rollout's active time, at least one; None without a limit."""
        if limits.max_active_seconds is None:
            return None
        return max(1.0, limits.max_active_seconds - self.totals.active_seconds)

    def limits_of_child(self, limits: Limits, turns: int) -> Limits:
        """The limits of a child: `turns`, and the tokens and time that this rollout has left of its own."""
        totals, most = self.totals, limits.max_sampled_tokens
        left = None if most is None else max(1, most - totals.sampled_tokens - totals.delegated_tokens)
        seconds = self.seconds_left(limits)
        budget = limits.rollout_budget.left(totals.spent) if limits.rollout_budget is not None else None
        bounds = {
            "max_turns": turns,
            "max_sampled_tokens": left,
            "max_active_seconds": seconds,
            "rollout_budget": budget,
        }
        return limits.model_copy(update=bounds)

    def limit_met(self, limits: Limits, sampling: int = 0) -> str | None:
        """The name of the first limit that leaves no room for another turn, beside those that are being sampled."""
        totals = self.totals
        sampled = totals.sampled_tokens + totals.delegated_tokens
        spent: tuple[tuple[str, float, float | None], ...] = (
            ("max_turns", totals.turns + sampling, limits.max_turns),
            ("max_sampled_tokens", sampled, limits.max_sampled_tokens),
            ("max_active_seconds", totals.active_seconds, limits.max_active_seconds),
        )
        met = next((name for name, used, bound in spent if bound is not None and used >= bound), None)
        if met is None and limits.rollout_budget is not None:
            bound = limits.rollout_budget.met(totals.spent)
            return f"budget.{bound}" if bound is not None else None
        return met


class RolloutRequest(FrozenModel):
    run: str
    rollout: str
    environment: str
    limits: Limits
    task_queues: TaskQueues
    state: RolloutState | None = None
    """Carried over a continue-as-new."""
    parent: Annotated[str | None, WHERE_SET] = None
    """The rollout that delegated its task, and waits for it; it has no reward then."""
    shared: Annotated[SharedSandbox | None, WHERE_SET] = None
    """The sandbox that it works in, where that is another rollout's."""


class RolloutSummary(Totals):
    """The end of a scored rollout, small enough for a workflow result."""

    rollout: str
    replacement_of: str | None = None
    """The failed sibling that it replaces. Replacing favours short rollouts: it can be left out."""
    ending: Ending
    score: float
    reward_error: bool = False
    """The score is 0 because the verifier failed, as the run asks for: it can be left out."""
    verifier_failed: Annotated[bool, WHERE_SET] = False
    """The score is 0 because the agent made the verifier fail."""
    verified_again: Annotated[bool, WHERE_SET] = False
    """Verification began anew, or another process took it over."""
    losses: tuple[Fidelity, ...] = ()
    """Fidelity of each sandbox that replaced a lost one: rollouts can be left out by it."""
    parent: Annotated[str | None, WHERE_SET] = None
    """The rollout that delegated its task; where there is one, the score says nothing."""
    left: Annotated[LeftSandbox | None, WHERE_SET] = None
    """The sandbox that it shared with its parent."""


class RolloutStart(FrozenModel):
    """The start of a rollout's workflow."""

    scored: Annotated[RolloutSummary | None, WHERE_SET] = None
    """The result, if an earlier workflow of the rollout was scored."""
    model_queue: Annotated[str | None, WHERE_SET] = None
    """The queue of the process that samples its turns, if there are any left."""
    acquire_at_start: Annotated[bool, WHERE_SET] = False
    """Whether its sandbox is made while its first turn is sampled."""
    program: Annotated[bool, WHERE_SET] = False
    """Whether a program acts, which asks for each turn."""
    turn: Annotated[TurnResult | None, WHERE_SET] = None
    """The first turn, if it was sampled."""
    silence: Annotated[int, WHERE_SET] = 0
    """Seconds for which the first turn may be silent, if it wasn't; 0 as usual."""


class ConcludeRequest(FrozenModel):
    rollout: str
    ending: Ending
    totals: Totals
    losses: tuple[Fidelity, ...]
    parent: Annotated[str | None, WHERE_SET] = None
    left: Annotated[LeftSandbox | None, WHERE_SET] = None


class Prompt(FrozenModel):
    """The input of a rollout."""

    item: Item
    messages: tuple[ChatMessage, ...]
    seed: int
    workspace_files: dict[str, str] = {}
    """Path -> base64 content, put into the sandbox before the first command."""
    sandbox: ItemSandbox = ItemSandbox()
    """The item's own settings of its sandbox."""
    plan: Plan | None = None
    """The turns of an agent that is no model."""
    recorded: Annotated[str | None, WHERE_SET] = None
    """The rollout of another run whose turns they are."""
    program: Annotated[str | None, WHERE_SET] = None
    """The program that acts, with a loop of its own."""
    delegated: Annotated[DelegatedPrompt | None, WHERE_SET] = None
    """Set where another rollout delegated the task."""


def as_bytes(files: Mapping[str, str | bytes]) -> dict[str, bytes]:
    return {path: text.encode() if isinstance(text, str) else text for path, text in files.items()}


def encoded_files(files: Mapping[str, str | bytes]) -> dict[str, str]:
    """Files as `workspace_files` has them."""
    return {path: base64.b64encode(content).decode() for path, content in as_bytes(files).items()}


class EndEntry(FrozenModel):
    """The end of a scored rollout."""

    summary: RolloutSummary


class Work(FrozenModel):
    """The work of scored rollouts, as the display of a run sums it up."""

    rollouts: int = 0
    turns: int = 0
    tool_calls: int = 0
    sampled_tokens: int = 0
    reward_sum: float = 0.0

    def with_ends(self, ends: Iterable[RolloutSummary]) -> Self:
        summaries = tuple(ends)
        return self.model_copy(
            update={
                "rollouts": self.rollouts + len(summaries),
                "turns": self.turns + sum(each.turns for each in summaries),
                "tool_calls": self.tool_calls + sum(each.tool_calls for each in summaries),
                "sampled_tokens": self.sampled_tokens + sum(each.sampled_tokens for each in summaries),
                "reward_sum": self.reward_sum + sum(each.score for each in summaries),
            }
        )
