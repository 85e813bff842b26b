"""The activities that tell of runs that paused themselves or ended."""

from temporalio import activity

from activities.guard import activity_guard
from clotho.plugins.notices.sending import Notifier
from clotho.rollouts.notice import Notice


class Notifications:
    """Activities of the environment's queue; each does nothing where the worker's settings don't ask for it."""

    def __init__(self, notifier: Notifier) -> None:
        self._notifier = notifier

    @activity.defn
    async def run_notice_command(self, notice: Notice) -> None:
        async with activity_guard(notice.run):
            await self._notifier.run_command(notice)

    @activity.defn
    async def post_notice(self, notice: Notice) -> None:
        async with activity_guard(notice.run):
            await self._notifier.post(notice)
