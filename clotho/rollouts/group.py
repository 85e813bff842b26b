"""A group of siblings: its request, its tools, its repairs, and its end."""

from clotho.frozen_model import FrozenModel
from clotho.models.messages import ToolSchema
from clotho.rollouts.item import Item
from clotho.rollouts.outcome import Limits
from clotho.rollouts.rollout import RolloutRequest, RolloutSummary
from clotho.rollouts.task_queues import TaskQueues


class RepairBounds(FrozenModel):
    """Bounds on starting siblings again that failed for infrastructure reasons."""

    per_group: int = 4
    per_run: int = 200


class GroupRequest(FrozenModel):
    run: str
    group: str
    environment: str
    item: int
    """Index of the dataset item in the run's manifest."""
    size: int
    limits: Limits
    task_queues: TaskQueues
    repairs: RepairBounds = RepairBounds()

    def sibling(self, rollout: str, max_active_seconds: float | None = None) -> RolloutRequest:
        """The request for one of its rollouts, which an item may bound more than its run does."""
        bounds = [each for each in (self.limits.max_active_seconds, max_active_seconds) if each is not None]
        limits = self.limits.model_copy(update={"max_active_seconds": min(bounds, default=None)})
        return RolloutRequest(
            run=self.run,
            rollout=rollout,
            environment=self.environment,
            limits=limits,
            task_queues=self.task_queues,
        )


class AwaitAnyClosed(FrozenModel):
    run: str
    workflows: tuple[str, ...]


class PreparedGroup(FrozenModel):
    """The resolved tools of a group, and its current siblings."""

    siblings: tuple[str, ...]
    """The rollouts to run, replacements included."""
    attempt: int
    """Number of attempts at the group that ended incomplete."""

    toolsets: tuple[str, ...]
    tools: tuple[str, ...]
    unavailable: tuple[str, ...]
    max_active_seconds: float | None = None
    """The item's own limit, where it has one."""


class SiblingFailure(FrozenModel):
    """A rollout or group that ended without a result, and why."""

    workflow: str
    kind: str
    """The kind of the error, as in clotho.failure_policy."""
    reason: str


class RepairRequest(FrozenModel):
    """A request to start a failed sibling again, if the bounds allow."""

    run: str
    group: str
    attempt: int
    number: int
    """Number of this repair within the attempt at the group."""
    failure: SiblingFailure
    from_scratch: bool
    bounds: RepairBounds


class GroupFailure(FrozenModel):
    """The details of a group that failed."""

    failures: tuple[SiblingFailure, ...]


class AttemptEntry(FrozenModel):
    """An attempt at a group that ended incomplete."""

    siblings: tuple[RolloutSummary, ...]
    failures: tuple[SiblingFailure, ...]


class GroupAttempt(AttemptEntry):
    group: str
    number: int


class GroupSummary(FrozenModel):
    group: str
    siblings: tuple[RolloutSummary, ...]


class ServerTool(FrozenModel):
    """A tool of an MCP server: the server's name in the run's settings, and the tool's name there."""

    server: str
    tool: str


class OfferedTool(FrozenModel):
    name: str
    toolset: str
    sandboxed: bool
    tool_schema: ToolSchema
    of_server: ServerTool | None = None
    """Set for a tool of an MCP server."""


class ToolManifest(FrozenModel):
    """The tools of one group: the same for all of its siblings."""

    toolsets: tuple[str, ...]
    tools: tuple[OfferedTool, ...]
    unavailable: dict[str, str]
    """Tool -> why it was dropped."""

    def offered(self, name: str) -> OfferedTool | None:
        return next((tool for tool in self.tools if tool.name == name), None)


class RepairEntry(FrozenModel):
    """A sibling that failed for infrastructure reasons was started again."""

    failure: SiblingFailure
    turns: int
    """Turns and sampled tokens before the failure: they show whether failures meet long rollouts more often."""
    sampled_tokens: int
    continued_as: str
    """The same rollout, continued from its last journalled turn, or a replacement that starts from scratch."""


class GroupEntry(FrozenModel):
    """A complete, scored group."""

    item: Item
    toolsets: tuple[str, ...]
    siblings: tuple[RolloutSummary, ...]
    repairs: tuple[RepairEntry, ...] = ()
