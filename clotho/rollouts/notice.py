"""The notice of what has become of a run."""

from enum import StrEnum

from clotho.frozen_model import FrozenModel
from clotho.rollouts.task_queues import ActivityQueue


class RunEvent(StrEnum):
    PAUSED = "paused"
    """It paused itself: its rollouts fail alike, or its budget is met."""
    SCORED = "scored"
    """It has ended: every group is scored."""
    FAILED = "failed"
    CANCELLED = "cancelled"


class Notice(FrozenModel):
    """News of a run."""

    id: str
    """Identity of the notice: the same whenever it is sent again."""
    event: RunEvent
    run: str
    reason: str = ""
    """Why it has paused or failed."""
    groups: int
    scored: int
    """Scored groups, those included that were scored before the run was started again."""
    failed: int

    @property
    def text(self) -> str:
        because = f": {self.reason}" if self.reason else ""
        return f"run {self.run} {self.event}, {self.scored} of {self.groups} groups scored{because}"


class HookCall(FrozenModel):
    """A notice, and the plugin's hook that is told."""

    hook: str
    notice: Notice


class NoticeRequest(FrozenModel):
    notice: Notice
    queue: ActivityQueue
    """Whose workers give it."""
