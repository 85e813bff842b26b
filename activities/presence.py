"""Workers say that they are there before an activity begins anything: see `clotho.processes.liveness.Presence`."""

from typing import Any

from temporalio.worker import ActivityInboundInterceptor, ExecuteActivityInput, Interceptor

from clotho.processes.liveness import Presence


class PresenceInterceptor(Interceptor):
    """For every worker of a process, so that all its activities count as work."""

    def __init__(self, presence: Presence) -> None:
        self._presence = presence

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:
        return _Working(next, self._presence)


class _Working(ActivityInboundInterceptor):
    def __init__(self, next: ActivityInboundInterceptor, presence: Presence) -> None:
        super().__init__(next)
        self._presence = presence

    async def execute_activity(self, input: ExecuteActivityInput) -> Any:
        async with self._presence.working():
            return await super().execute_activity(input)
