"""Tasks to leave marks in the workspace with one tool, each once; the reward is 1 where that was done."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from clotho.environment import (
    AgentResult,
    Environment,
    EnvironmentConfig,
    Item,
    Reward,
    ToolContext,
)
from clotho.identifiers.ids import call_id
from clotho.plugin_settings import sections_of
from clotho.plugins.browser.settings import BrowserSettings
from clotho.plugins.demo.execution_markers import marks_in, with_marks
from clotho.plugins.mcp.settings import McpServer, McpSettings
from clotho.tools.delegation import DelegationSettings

MARKS = tuple(call_id(turn, 0) for turn in (1, 2, 3))
"""Each is named after the call that leaves it; the first turn looks."""
BESIDE = {mark: call_id(turn, 1) for turn, mark in enumerate(MARKS, start=1)}
"""The mark that a parent leaves in the turn in which a child leaves one."""
BEGUN = "begun"
"""The first thing that a child does."""
PAUSES = (0, 4)
"""Seconds that leaving a mark may take."""
HOST = "marks.test"
HOST_FAILED = "Tool execution failed"
"""In what the model reads of an error that no tool expects: a failure of the host is none of its business."""
SERVER, SITE = "/work/.tools/mcp_server.py", "/work/.tools/site.py"
PROGRAMS = {place: Path(__file__).with_name(Path(place).name) for place in (SERVER, SITE)}


class MarkTasks(Environment):
    """An environment that gives the same item for ever."""

    marks: tuple[str, ...] = MARKS

    async def get_next_item(self) -> Item:
        return {}

    def format_prompt(self, item: Item) -> str:
        return f"Leave the marks {', '.join(MARKS)}, each once."

    def workspace_files(self, item: Item) -> Mapping[str, str]:
        return {place: program.read_text() for place, program in PROGRAMS.items()}

    async def compute_reward(self, item: Item, result: AgentResult, ctx: ToolContext) -> Reward:
        found = await with_marks(Reward(score=0.0), ctx)
        told = any(HOST_FAILED in error.error for error in result.tool_errors)
        done = marks_in(found.log) == dict.fromkeys(self.marks, 1)
        return found.model_copy(update={"score": float(done and not told)})


class CodeConfig(EnvironmentConfig):
    enabled_toolsets: tuple[str, ...] | None = ("code_execution", "terminal")


class CodeTasks(MarkTasks):
    config_class = CodeConfig


class McpConfig(EnvironmentConfig):
    enabled_toolsets: tuple[str, ...] | None = ("mcp-marks",)
    plugins: dict[str, Any] = sections_of(
        McpSettings(servers={"marks": McpServer(command=("python3", SERVER))})
    )


class McpTasks(MarkTasks):
    config_class = McpConfig


class BrowserConfig(EnvironmentConfig):
    enabled_toolsets: tuple[str, ...] | None = ("browser",)
    plugins: dict[str, Any] = sections_of(
        BrowserSettings(sites={HOST: f"python3 {SITE} {','.join(MARKS)} {','.join(map(str, PAUSES))}"})
    )


class BrowserTasks(MarkTasks):
    config_class = BrowserConfig


class DelegationConfig(EnvironmentConfig):
    enabled_toolsets: tuple[str, ...] | None = ("delegation", "terminal")
    delegation: DelegationSettings | None = DelegationSettings()


class DelegationTasks(MarkTasks):
    config_class = DelegationConfig
    marks = (*MARKS, *BESIDE.values())


class SharedConfig(DelegationConfig):
    delegation: DelegationSettings | None = DelegationSettings(sandbox="shared")


class SharedTasks(DelegationTasks):
    config_class = SharedConfig
