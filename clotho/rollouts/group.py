"""A group of siblings: its request, its tools, its repairs, and its end."""

from collections.abc import Iterable, Sequence
from typing import Annotated

from clotho.frozen_model import WHERE_SET, FrozenModel, Seconds
from clotho.identifiers.ids import depth_of, group_of
from clotho.identifiers.keys import prompt_key, tools_key
from clotho.journal import Journal
from clotho.models.messages import ToolCall, ToolSchema
from clotho.rollouts.budget import Spending
from clotho.rollouts.item import Item
from clotho.rollouts.outcome import Limits
from clotho.rollouts.rollout import Prompt, RolloutRequest, RolloutSummary
from clotho.rollouts.task_queues import TaskQueues
from clotho.tools import catalogue
from clotho.tools.tool import ToolPlace

MOST_SIDE_BY_SIDE = 8
"""Calls of a rollout that run at once."""


class RepairBounds(FrozenModel):
    """Bounds on starting siblings again that failed for infrastructure reasons."""

    per_group: int = 4
    per_run: int = 200
    """Repairs that any run may have, however small."""
    share_of_run: float = 0.25
    """Repairs for each rollout that the run has so far, where those are more."""

    def in_run(self, rollouts: int) -> int:
        """Most repairs of a run with so many rollouts."""
        return max(self.per_run, int(self.share_of_run * rollouts))


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
    groups: tuple[str, ...]


class ClosedGroup(FrozenModel):
    """A group whose workflow has closed, and its result, if it was scored."""

    group: str
    scored: "GroupSummary | None"


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


class GroupStart(FrozenModel):
    """The start of a group's workflow: exactly one of the two."""

    scored: GroupSummary | None = None
    """The result, if the group was scored before, possibly by another Temporal database."""
    prepared: PreparedGroup | None = None


class OfferedTool(FrozenModel):
    name: str
    toolset: str
    sandboxed: bool
    read_only: bool = False
    tool_schema: ToolSchema
    place: ToolPlace | None = None
    """Set for a tool that the run's settings bring."""


class ToolManifest(FrozenModel):
    """The tools of one group, and its item's time limit: the same for all of its siblings."""

    toolsets: tuple[str, ...]
    tools: tuple[OfferedTool, ...]
    unavailable: dict[str, str]
    """Tool -> why it was dropped."""
    max_active_seconds: Annotated[float | None, WHERE_SET] = None
    """The item's own limit, where it has one: a sibling that is retried by itself keeps it."""

    def offered(self, name: str) -> OfferedTool | None:
        return next((tool for tool in self.tools if tool.name == name), None)

    def batches(self, calls: Sequence[ToolCall], limits: Limits) -> list[range]:
        """A turn's calls by batch, as indices: neighbours that only read run side by side, others alone."""
        batches: list[range] = []
        room = 0
        for index, call in enumerate(calls):
            offered = self.offered(call.function.name) if index < limits.max_calls_per_turn else None
            reads = limits.parallel_tools and offered is not None and offered.read_only
            if reads and room:
                batches[-1] = range(batches[-1].start, index + 1)
                room -= 1
            else:
                batches.append(range(index, index + 1))
                room = MOST_SIDE_BY_SIDE - 1 if reads else 0
        return batches


async def read_tools(journal: Journal, rollout: str) -> ToolManifest:
    """Read the tools of a rollout whose group was prepared; raises JournalCorrupt where they are missing."""
    tools = await journal.read_required(tools_key(group_of(rollout)), ToolManifest)
    if not depth_of(rollout):
        return tools
    prompt = await journal.read_required(prompt_key(rollout), Prompt)
    assert prompt.delegated is not None, f"{rollout} is no child"
    given = tuple(tool for tool in tools.tools if tool.name in prompt.delegated.tools)
    return tools.model_copy(update={"tools": given})


def in_toolsets(tools: Iterable[OfferedTool], toolsets: Iterable[str]) -> tuple[OfferedTool, ...]:
    """The tools of `tools` in one of `toolsets`, by the names that environments use."""
    leaves = {leaf for name in toolsets for leaf in catalogue.COMPOSITES.get(name, (name,))}
    named = {name for leaf in leaves for name in catalogue.LEAVES.get(leaf, ())}
    return tuple(tool for tool in tools if tool.toolset in leaves or tool.name in named)


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
    spent: Annotated[Spending | None, WHERE_SET] = None
    """Spending of all its rollouts, replaced ones and children included, where the run has a budget."""
    ended: Annotated[Seconds | None, WHERE_SET] = None
    """Unix time at which it was scored."""
