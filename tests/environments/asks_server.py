"""A reward that calls the tool of an MCP server, which hangs the first time."""

import json
from pathlib import Path

from clotho.environment import AgentResult, Environment, EnvironmentConfig, Item, Reward, ToolContext


class AsksServerConfig(EnvironmentConfig):
    enabled_toolsets: tuple[str, ...] | None = ("mcp-notes",)
    calls: str
    """The file in which the server leaves its calls."""


class AsksServer(Environment):
    config_class = AsksServerConfig
    config: AsksServerConfig

    async def get_next_item(self) -> Item | None:
        return {"prompt": "Say something."}

    async def compute_reward(self, item: Item, result: AgentResult, ctx: ToolContext) -> Reward:
        how = "noise" if Path(self.config.calls).exists() else "hang"
        said = json.loads(await ctx.aio.call_tool("mcp_notes_misbehave", {"text": how}))
        return Reward(score=float(said == {"result": "done"}), log=json.dumps(said))
