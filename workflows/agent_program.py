"""An agent that is a program with a loop of its own: it runs in the sandbox and asks for its turns by updates.

Its turns are steps of the workflow like those of Clotho's loop. An update's id has the turn's number: where
Temporal's server or the asking process dies, the update is sent again, and has one answer. One activity serves the
program. The program is a job of the sandbox and outlives the activity: another attempt goes on with the same one.
"""

import asyncio
from typing import TYPE_CHECKING

from temporalio import workflow
from temporalio.exceptions import ActivityError, ApplicationError

with workflow.unsafe.imports_passed_through():
    from activities.agents import Agents
    from clotho.rollouts.lease import Lease
    from clotho.rollouts.outcome import Ending, Outcome
    from clotho.rollouts.program_end import AskedTurn, ProgramEnd, ProgramRequest
    from clotho.rollouts.turn import TurnRequest

from workflows.pausing import rest
from workflows.sandbox_session import SandboxRepeatedlyLost
from workflows.steps import QUEUE_TIMEOUT

if TYPE_CHECKING:
    from workflows.rollout import Rollout

MOST_UPDATES = 1_000
"""Updates of one run of a workflow, of which Temporal takes 2,000."""


class AgentProgram:
    """The program of one rollout."""

    def __init__(self, rollout: "Rollout") -> None:
        self.rollout = rollout
        self.sampling: set[int] = set()
        """The turns that are being sampled."""
        self.resting: asyncio.Task[None] | None = None
        self.updates = 0
        self.continues_as_new = False
        self.failure: ActivityError | None = None

    async def run(self) -> Ending | None:
        """Run the program to its end; None where the workflow continues as new, and it goes on meanwhile."""
        running = asyncio.create_task(self.in_sandbox())
        await workflow.wait_condition(lambda: running.done() or self.failure is not None or self.is_long())
        if self.failure is not None:
            running.cancel()
            await asyncio.wait([running])
            raise self.failure
        if running.done():
            return running.result()
        self.continues_as_new = True
        # a turn that is being sampled counts in the state that the next run gets
        await workflow.wait_condition(workflow.all_handlers_finished)
        return None

    def is_long(self) -> bool:
        return self.updates >= MOST_UPDATES or workflow.info().is_continue_as_new_suggested()

    async def in_sandbox(self) -> Ending:
        session = self.rollout.sandbox

        async def act(lease: Lease) -> ProgramEnd:
            state = self.rollout.state
            request = ProgramRequest(
                rollout=self.rollout.rollout,
                lease=lease.number,
                asked=state.asked,
                seconds_left=state.seconds_left(self.rollout.request.limits),
            )
            queue = session.activity_queue_of(lease)
            return await session.run_where_begun(
                Agents.run_program, request, queue, "run the agent's program", None, QUEUE_TIMEOUT
            )

        try:
            end = await session.use(act, turns=0)
        except SandboxRepeatedlyLost as ended:
            return Ending(outcome=Outcome.POLICY_KILLED, limit=ended.limit)
        if end.replayed is not None:
            session.note_replay(end.replayed)
        self.rollout.state = self.rollout.state.after_program(end)
        if end.limit is not None:
            return Ending(outcome=Outcome.LIMIT_REACHED, limit=end.limit)
        return Ending(outcome=Outcome.CONTEXT_OVERFLOW if end.context_overflow else Outcome.COMPLETED)

    def require_room(self) -> None:
        """Refuse an update that the next run of the workflow has to take."""
        if self.continues_as_new:
            raise ApplicationError("the workflow continues as new")

    async def sample(self, turn: int) -> AskedTurn:
        """Sample a turn, unless a limit leaves no room for it."""
        self.updates += 1
        await workflow.wait_condition(lambda: turn not in self.sampling)
        # Temporal knows an update's id within one run: after a continue-as-new, a turn may be asked for again
        if turn in self.rollout.state.asked:
            return AskedTurn()
        if (
            limit := self.rollout.state.limit_met(self.rollout.request.limits, len(self.sampling))
        ) is not None:
            return AskedTurn(limit=limit)
        self.sampling.add(turn)
        try:
            await self.sample_unless_paused(turn)
        except ActivityError as error:
            # `run` raises it: what a handler raises fails the update alone, not the workflow
            self.failure = error
            return AskedTurn(failed=True)
        finally:
            self.sampling.discard(turn)
        return AskedTurn()

    async def rest(self) -> None:
        """Rest, once for all turns that wait."""
        if self.resting is None:
            self.resting = asyncio.create_task(rest(self.rollout.task_queues.model))
        resting = self.resting
        # not awaited directly: a cancel of one turn would end the rest of the others
        await asyncio.wait([resting])
        if self.resting is resting:
            self.resting = None
        resting.result()

    async def sample_unless_paused(self, turn: int) -> None:
        rollout = self.rollout
        request = TurnRequest(rollout=rollout.rollout, turn=turn, asked=True)
        rollout.show(f"sampling turn {turn} for the agent's program")
        while (sampled := await rollout.model.sample(request)) is None:
            rollout.show(f"paused before turn {turn}")
            await self.rest()
        rollout.state = rollout.state.after_asked(turn, sampled)
        rollout.show("waiting for the agent's program")
