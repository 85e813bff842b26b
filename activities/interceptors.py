"""Activities show that their process lives, and how far it is behind."""

from typing import Any

from temporalio import activity
from temporalio.worker import ActivityInboundInterceptor, ExecuteActivityInput, Interceptor

from clotho.processes.heartbeats import Heartbeats
from clotho.processes.load import ProcessLoad


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


class LoadInterceptor(Interceptor):
    """For the workers of workflows, whose steps are local, and that of a process's own queue."""

    def __init__(self, load: ProcessLoad) -> None:
        self._load = load

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:
        return _Loading(next, self._load)


class _Loading(ActivityInboundInterceptor):
    def __init__(self, next: ActivityInboundInterceptor, load: ProcessLoad) -> None:
        super().__init__(next)
        self._load = load

    async def execute_activity(self, input: ExecuteActivityInput) -> Any:
        info = activity.info()
        if info.is_local:
            with self._load.stepping():
                return await super().execute_activity(input)
        # both by the server's clock
        self._load.note_wait((info.started_time - info.current_attempt_scheduled_time).total_seconds())
        return await super().execute_activity(input)
