"""The process that samples a rollout's turns: it alone finds a call that is still in flight.

A turn is tried in the workflow's own process where one of the last two was quick: there it costs Temporal's server
little. Slow turns, and what isn't done here in time, are regular activities at that process's own queue: with
heartbeats, retries and a view in the UI. Where the workflow has moved to another process, the former one may be
asking already, and begins the next turn while it lives: each turn's entry names the process that begins the next
(`TurnEntry.next_home`).
"""

from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from temporalio import workflow
from temporalio.exceptions import ActivityError

with workflow.unsafe.imports_passed_through():
    from activities.llm import Model
    from clotho.models.gate import QUICK_SECONDS, WORTHWHILE
    from clotho.rollouts.rollout import RolloutStart
    from clotho.rollouts.task_queues import ActivityQueue
    from clotho.rollouts.turn import FirstTurnRequest, ModelProcessRequest, TurnRequest, TurnResult

from workflows.steps import (
    QUEUE_TIMEOUT,
    NotDoneHere,
    queue_of_beginner,
    raise_if_cancelled,
    run_activity,
    run_here,
    timed_out_in_queue,
)

Request = TypeVar("Request", bound=TurnRequest)
Result = TypeVar("Result")


class ModelProcess:
    """The model process of one rollout, replaced when it is gone; `queue` is its own task queue."""

    def __init__(self, rollout: str, activity_queue: ActivityQueue, queue: str | None) -> None:
        self.queue = queue
        self._rollout = rollout
        self._activity_queue = activity_queue
        self._here = True
        """Whether this workflow's process calls models, as far as is known."""
        self._quick = 0.0
        """Share of quick turns, of which each counts twice as much as the one before."""
        self._silence = 0
        """Seconds for which the next turn may be silent."""

    async def begin(self, request: FirstTurnRequest) -> RolloutStart:
        """Look up the rollout's end; without one, choose a process, which may sample the first turn."""
        what = f"turn {request.turn}" if request.sample else "look up end, choose model process"
        start = await self._run_here_first(Model.sample_first_turn, request, what)
        self.queue = start.model_queue
        self._silence = start.silence
        if start.turn is not None:
            self._note(start.turn)
        return start

    async def sample(self, request: TurnRequest) -> TurnResult | None:
        """Sample a turn; None while the rollout is paused."""
        here_first = self._here and self._quick >= WORTHWHILE
        run = self._run_here_first if here_first else self._run_where_begun
        turn: TurnResult | None = await run(Model.sample_turn, request, f"turn {request.turn}")
        if turn is not None:
            self._note(turn)
        return turn

    def _note(self, turn: TurnResult) -> None:
        self.queue = turn.next_home or self.queue
        self._quick = (self._quick + (turn.seconds < QUICK_SECONDS)) / 2
        self._silence = turn.silence

    async def _run_here_first(
        self, activity: Callable[[Any, Request], Coroutine[Any, Any, Result]], request: Request, what: str
    ) -> Result:
        try:
            result = await run_here(activity, request, self._activity_queue, what)
        except NotDoneHere as begun:
            self._here = not begun.elsewhere
            self.queue = begun.queue or self.queue
            # another process that has begun this turn samples it; the next one is begun where the workflow is now
            moved = request.model_copy(update={"next_home": begun.own})
            return await self._run_where_begun(activity, moved, what)
        raise_if_cancelled()
        return result

    async def _run_where_begun(
        self, activity: Callable[[Any, Request], Coroutine[Any, Any, Result]], request: Request, what: str
    ) -> Result:
        """Run a step at the queue of the process that may have begun it, while that lives; else at any other's."""
        while True:
            own = self._activity_queue.with_queue(self.queue or self._activity_queue.queue)
            # in the queue that all processes serve, a long wait tells of no single one
            waits = None if self.queue is None else QUEUE_TIMEOUT
            try:
                return await run_activity(activity, request, own.with_patience(self._silence), what, waits)
            except ActivityError as error:
                if (beginner := queue_of_beginner(error)) is not None:
                    self.queue = beginner
                elif timed_out_in_queue(error):
                    choice = ModelProcessRequest(rollout=self._rollout, queue=self.queue)
                    self.queue = await run_activity(
                        Model.choose_process, choice, self._activity_queue, "choose model process"
                    )
                else:
                    raise
