"""Workers show that they live before an activity begins anything (`clotho/processes/heartbeats.py`)."""

from typing import Any

from temporalio.worker import ActivityInboundInterceptor, ExecuteActivityInput, Interceptor

from clotho.processes.heartbeats import Heartbeats


class PresenceInterceptor(Interceptor):
    """For every worker of a process, so that all its activities count as work."""

    def __init__(self, heartbeats: Heartbeats) -> None:
        self._heartbeats = heartbeats

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:
        return _Working(next, self._heartbeats)


class _Working(ActivityInboundInterceptor):
    def __init__(self, next: ActivityInboundInterceptor, heartbeats: Heartbeats) -> None:
        super().__init__(next)
        self._heartbeats = heartbeats

    async def execute_activity(self, input: ExecuteActivityInput) -> Any:
        async with self._heartbeats.working():
            return await super().execute_activity(input)
