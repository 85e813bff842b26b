"""The agent loop as a durable workflow."""

import asyncio
from collections.abc import Sequence
from itertools import islice
from typing import NoReturn

from temporalio import workflow
from temporalio.exceptions import ActivityError, ChildWorkflowError

with workflow.unsafe.imports_passed_through():
    from activities.reward import Verifier
    from activities.rollouts import Rollouts
    from activities.tools import Tools
    from clotho.escaping import displayable, for_markdown
    from clotho.rollouts.call import CallRequest, CallResult
    from clotho.rollouts.lease import Lease
    from clotho.rollouts.outcome import Ending, Outcome
    from clotho.rollouts.program_end import AskedTurn
    from clotho.rollouts.rollout import (
        ConcludeRequest,
        RolloutRequest,
        RolloutState,
        RolloutSummary,
    )
    from clotho.rollouts.turn import FirstTurnRequest, ToolCallReference, TurnRequest, TurnResult
    from clotho.rollouts.verification import RewardRequest, RewardResult
    from clotho.tools.shell import SLOT

from workflows import attributes
from workflows.agent_program import AgentProgram
from workflows.delegation import Delegation
from workflows.model_process import ModelProcess
from workflows.pausing import rest
from workflows.sandbox_session import SandboxRepeatedlyLost, SandboxSession, is_loss, is_mended
from workflows.steps import clean_up, raise_if_cancelled, run_activity, run_activity_here_first, side_by_side

NAME_CHARACTERS = 40
"""Characters of a tool's name in a call's summary."""
COMPLETED = Ending(outcome=Outcome.COMPLETED)
CUT_OFF = Ending(outcome=Outcome.LIMIT_REACHED, limit="max_tokens")


@workflow.defn
class Rollout:
    """One agent at one task: sample a turn, run its tool calls, until the model stops or a limit is met.

    A scored rollout completes; an infrastructure failure fails the workflow, and a cancel ends it Canceled.
    """

    @workflow.init
    def __init__(self, request: RolloutRequest) -> None:
        self.request = request
        self.rollout = request.rollout
        self.task_queues = request.task_queues
        self.state = request.state or RolloutState()
        self.model = ModelProcess(self.rollout, self.task_queues.model, self.state.model_queue)
        self.sandbox = SandboxSession(request)
        self.delegation = Delegation(request, self.sandbox)
        self.program = AgentProgram(self)
        self.acquires_at_start = False
        self.first_turn: TurnResult | None = None
        self.keeps_sandbox = False
        self.releasing: asyncio.Task[None] | None = None

    @workflow.run
    async def run(self, request: RolloutRequest) -> RolloutSummary:
        try:
            if (scored := await self.begin()) is not None:
                return scored
            ending = await self.agent_acts()
            if request.parent is None:  # only what it is part of has a reward
                await self.verify(ending)
            return await self.conclude(ending)
        except (ActivityError, ChildWorkflowError):
            attributes.show_outcome(attributes.INFRASTRUCTURE_FAILURE)
            raise
        finally:
            if not self.keeps_sandbox:
                await clean_up(self.release_sandbox(), "release of the sandbox")

    async def begin(self) -> RolloutSummary | None:
        """Find the result of an earlier workflow; without one, sample the first turn in the same step."""
        if self.model.queue is not None:  # continued as new
            return None
        turn = self.state.turn
        sample = self.state.limit_met(self.request.limits) is None
        self.show(f"sampling turn {turn}")
        request = FirstTurnRequest(rollout=self.rollout, turn=turn, sample=sample)
        start = await self.model.begin(request)
        self.state = self.state.model_copy(update={"program": start.program})
        self.acquires_at_start, self.first_turn = start.acquire_at_start, start.turn
        return start.scored

    async def agent_acts(self) -> Ending:
        if not self.state.program:
            return await self.agent_loop()
        if (ending := await self.program.run()) is None:
            self.continue_as_new()
        return ending

    @workflow.update
    async def sample_asked(self, turn: int) -> AskedTurn:
        """Sample a turn that the agent's program asks for."""
        return await self.program.sample(turn)

    @sample_asked.validator
    def require_room(self, turn: int) -> None:
        self.program.require_room()

    async def agent_loop(self) -> Ending:
        while (limit := self.state.limit_met(self.request.limits)) is None:
            turn = await self.sample_turn()
            if turn.context_overflow:
                return Ending(outcome=Outcome.CONTEXT_OVERFLOW)
            if not turn.tool_calls:
                return CUT_OFF if turn.truncated else COMPLETED
            try:
                calls = enumerate(turn.tool_calls)
                for size in turn.batches or (1,) * len(turn.tool_calls):
                    await self.call_tools(list(islice(calls, size)))
            except SandboxRepeatedlyLost as ended:
                return Ending(outcome=Outcome.POLICY_KILLED, limit=ended.limit)
            await self.continue_as_new_if_long()
        return Ending(outcome=Outcome.LIMIT_REACHED, limit=limit)

    async def sample_turn(self) -> TurnResult:
        request = TurnRequest(rollout=self.rollout, turn=self.state.turn)
        while (turn := await self.turn_unless_paused(request)) is None:
            self.show(f"paused before turn {request.turn}")
            await rest(self.task_queues.model)
        self.state = self.state.after_turn(turn)
        return turn

    async def turn_unless_paused(self, request: TurnRequest) -> TurnResult | None:
        if (sampled := self.first_turn) is not None:
            self.first_turn = None
            return sampled
        first = request.turn == 0 and self.sandbox.lease is None and self.sandbox.acquiring is None
        if self.acquires_at_start and first:
            self.sandbox.begin_acquiring(turns=0, early=True)
        self.show(f"sampling turn {request.turn}")
        return await self.model.sample(request)

    async def call_tools(self, calls: Sequence[tuple[int, ToolCallReference]]) -> None:
        """Make calls side by side; their results count in order."""
        turn = self.state.turn - 1
        self.show(f"turn {turn}: calling {', '.join(for_markdown(call.name) for _, call in calls)}")
        for index in (index for index, call in calls if call.delegates):
            await self.delegation.run_child(self.call_request(index), self.state)
        results: dict[int, CallResult] = {}

        async def on_some_host(index: int, call: ToolCallReference) -> None:
            request = self.call_request(index, len(calls))
            results[index] = await self.sandbox.run_on_some_host(
                Tools.call_tool, request, call_summary(turn, index, call)
            )
            # run_on_some_host goes on after a cancel
            raise_if_cancelled()

        async def in_sandbox(lease: Lease, index: int, call: ToolCallReference) -> None:
            leased = self.call_request(index, len(calls)).model_copy(update={"lease": lease.number})
            results[index] = await self.sandbox.run(
                Tools.call_tool, leased, lease, call_summary(turn, index, call)
            )

        async def all_in_sandbox(lease: Lease) -> None:
            steps = [in_sandbox(lease, index, call) for index, call in calls if call.sandboxed]
            await side_by_side(steps, foremost=is_mended)

        work = [on_some_host(index, call) for index, call in calls if not call.sandboxed]
        if len(work) < len(calls):
            # Once for all of them: a sandbox that is lost is restored once, and each call is asked for again in it.
            work.append(self.sandbox.use(all_in_sandbox, self.state.turn))
        try:
            await side_by_side(work)
        except SandboxRepeatedlyLost:  # the calls that had finished count
            for index, result in sorted(results.items()):
                self.state = self.state.after_call(self.call_request(index).place, result)
            raise
        for index, _ in calls:
            result = results[index]
            self.state = self.state.after_call(self.call_request(index).place, result)
            if result.replayed is not None:
                self.sandbox.note_replay(result.replayed)
            if result.delegated is not None and result.delegated.left is not None:
                self.sandbox.go_on_from(result.delegated.left)

    def call_request(self, index: int, beside: int = 1) -> CallRequest:
        """The request of a call; calls that run side by side share the time that the rollout has left."""
        seconds = self.state.seconds_left(self.request.limits)
        return CallRequest(
            rollout=self.rollout,
            turn=self.state.turn - 1,
            index=index,
            lease=None,
            tool_state=self.state.tool_state,
            seconds_left=None if seconds is None else max(1.0, seconds / beside),
            checkpoint=self.state.checkpoint,
            owner=self.request.shared.owner if self.request.shared is not None else None,
        )

    async def verify(self, ending: Ending) -> None:
        self.show("verifying")
        request = RewardRequest(
            rollout=self.rollout,
            ending=ending,
            turns=self.state.turn,
            lease=None,
            checkpoint=self.state.checkpoint,
            shell=self.state.tool_state.get(SLOT),
        )
        elsewhere = self.task_queues.verification
        # or verification would open a sandbox itself, maybe on another host, for the lease that is being made
        await self.sandbox.finish_acquiring()
        if self.sandbox.lease is None and await self.verify_without_lease(request):
            return

        async def run(lease: Lease) -> RewardResult:
            leased = request.model_copy(update={"lease": lease})
            if elsewhere is not None:
                return await run_activity(Verifier.verify, leased, elsewhere, "verify")
            return await self.sandbox.run(Verifier.verify, leased, lease, "verify")

        try:
            await self.sandbox.use(run, self.state.turn)
        except SandboxRepeatedlyLost as ended:
            if ended.exhausted is None:
                raise
            update = {"lease": self.sandbox.lease, "exhausted": ended.exhausted}
            given_up = request.model_copy(update=update)
            await run_activity(
                Verifier.verify, given_up, elsewhere or self.task_queues.sandbox, "give verification up"
            )

    async def verify_without_lease(self, request: RewardRequest) -> bool:
        """Verify a rollout without a sandbox, opening one if needed; False if that is lost."""
        try:
            if (elsewhere := self.task_queues.verification) is not None:
                reward = await run_activity(Verifier.verify, request, elsewhere, "verify")
            else:
                reward = await self.sandbox.run_on_some_host(Verifier.verify, request, "verify")
        except ActivityError as error:
            if not is_loss(error):
                raise
            return False
        self.sandbox.lease = reward.lease
        raise_if_cancelled()
        return True

    async def conclude(self, ending: Ending) -> RolloutSummary:
        left = None
        if self.request.shared is None:
            self.release_sandbox()  # concurrently: the end is written from the journal
        else:
            await self.sandbox.finish_acquiring()
            left = self.state.left(self.sandbox.lease, self.sandbox.losses)
        request = ConcludeRequest(
            rollout=self.rollout,
            ending=ending,
            totals=self.state.totals,
            losses=self.sandbox.losses,
            parent=self.request.parent,
            left=left,
        )
        environment = self.task_queues.environment
        summary = await run_activity_here_first(Rollouts.conclude, request, environment, "write end")
        # last: a child that fails before fails its parent too, and releases the sandbox for it
        self.keeps_sandbox = left is not None  # the parent goes on in it
        if self.request.parent is not None:
            attributes.show_outcome(summary.ending.outcome)
            self.show(summary.ending.outcome)
        else:
            attributes.show_result(summary.ending.outcome, summary.score)
            self.show(f"{summary.ending.outcome}, reward {summary.score:g}")
        return summary

    def release_sandbox(self) -> asyncio.Task[None]:
        """Start releasing the sandbox, once."""
        if self.releasing is None:
            self.releasing = asyncio.create_task(self.sandbox.release())
        return self.releasing

    async def continue_as_new_if_long(self) -> None:
        if workflow.info().is_continue_as_new_suggested():
            # The next execution gets the lease: a sandbox that is still being made would be nobody's.
            await self.sandbox.finish_acquiring()
            self.continue_as_new()

    def continue_as_new(self) -> NoReturn:
        # the exception of continue_as_new runs through `run`, which would release the sandbox
        self.keeps_sandbox = True
        session = {
            "lease": self.sandbox.lease,
            "losses": self.sandbox.losses,
            "model_queue": self.model.queue,
        }
        state = self.state.model_copy(update=session)
        workflow.continue_as_new(self.request.model_copy(update={"state": state}))

    def show(self, doing: str) -> None:
        """Set the details that the UI shows."""
        totals = self.state.totals
        workflow.set_current_details(
            f"**{doing}**\n\n{totals.turns} turns, {totals.tool_calls} tool calls ({totals.tool_errors} errors), "
            f"{totals.sampled_tokens} tokens sampled, {totals.prompt_tokens} prompt tokens, "
            f"{totals.active_seconds:.1f} s active\n\n`clotho show {self.rollout}`"
        )


def call_summary(turn: int, index: int, call: ToolCallReference) -> str:
    command = f" {for_markdown(call.command)}" if call.command else ""
    return f"{turn}.{index} {for_markdown(displayable(call.name, NAME_CHARACTERS))}{command}"
