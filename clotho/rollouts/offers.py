"""The tools that a rollout is offered: its group's, and of those a part where its task was delegated."""

from collections.abc import Iterable

from clotho.identifiers.group_keys import tools_key
from clotho.identifiers.ids import depth_of, group_of
from clotho.identifiers.rollout_keys import prompt_key
from clotho.journal import Journal
from clotho.rollouts.group import OfferedTool, ToolManifest
from clotho.rollouts.rollout import Prompt
from clotho.tools import catalogue


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
