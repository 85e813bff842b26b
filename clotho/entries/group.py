"""What the journal holds of a group: its tools, its repairs, and its end."""

from clotho.entries.items import Item
from clotho.inference.base import ToolSchema
from clotho.records.base import Record
from clotho.records.group import SiblingFailure
from clotho.records.rollout import RolloutSummary


class OfferedTool(Record):
    name: str
    toolset: str
    sandboxed: bool
    tool_schema: ToolSchema


class ToolManifest(Record):
    """The tools of one group: the same for all of its siblings."""

    toolsets: tuple[str, ...]
    tools: tuple[OfferedTool, ...]
    unavailable: dict[str, str]
    """Tool -> why it was dropped."""

    def offered(self, name: str) -> OfferedTool | None:
        return next((tool for tool in self.tools if tool.name == name), None)


class RepairEntry(Record):
    """A sibling that failed for infrastructure reasons was started again."""

    failure: SiblingFailure
    turns: int
    """How far it had come, in turns and sampled tokens: failures that meet long rollouts more often show here."""
    sampled_tokens: int
    continued_as: str
    """The same rollout, which goes on from its last journalled turn, or a replacement that starts from scratch."""


class AttemptEntry(Record):
    """A group's attempt that ended incomplete."""

    siblings: tuple[RolloutSummary, ...]
    failures: tuple[SiblingFailure, ...]


class GroupEntry(Record):
    """A complete, scored group."""

    item: Item
    toolsets: tuple[str, ...]
    siblings: tuple[RolloutSummary, ...]
    repairs: tuple[RepairEntry, ...] = ()
