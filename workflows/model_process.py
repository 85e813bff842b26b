"""The process that samples a rollout's turns: it alone finds a call that is still in flight."""

from temporalio import workflow
from temporalio.exceptions import ActivityError

with workflow.unsafe.imports_passed_through():
    from activities.llm import Model
    from clotho.rollouts.rollout import RolloutStart
    from clotho.rollouts.task_queues import ActivityQueue
    from clotho.rollouts.turn import FirstTurnRequest, ModelProcessRequest, TurnRequest, TurnResult

from workflows.steps import QUEUE_TIMEOUT, run_activity, timed_out_in_queue


class ModelProcess:
    """The model process of one rollout, replaced when it is gone; `queue` is its own task queue."""

    def __init__(self, rollout: str, activity_queue: ActivityQueue, queue: str | None) -> None:
        self.queue = queue
        self._rollout = rollout
        self._activity_queue = activity_queue
        self._queue_timed_out = False

    async def begin(self, request: FirstTurnRequest) -> RolloutStart:
        """Look up the rollout's end; without one, choose a process, which samples the first turn."""
        what = f"turn {request.turn}" if request.sample else "look up end, choose model process"
        start = await run_activity(Model.sample_first_turn, request, self._activity_queue, what)
        self.queue = start.model_queue
        return start

    async def sample(self, request: TurnRequest) -> TurnResult | None:
        """Sample a turn; None while the rollout is paused."""
        while True:
            if self._queue_timed_out:
                choice = ModelProcessRequest(rollout=self._rollout, queue=self.queue)
                self.queue = await run_activity(
                    Model.choose_process, choice, self._activity_queue, "choose model process"
                )
                self._queue_timed_out = False
            own = self._activity_queue.with_queue(self.queue or self._activity_queue.queue)
            try:
                return await run_activity(
                    Model.sample_turn, request, own, f"turn {request.turn}", QUEUE_TIMEOUT
                )
            except ActivityError as error:
                self._queue_timed_out = timed_out_in_queue(error)
                if not self._queue_timed_out:
                    raise
