"""What an environment author imports: Environment, AgentResult, Reward and ToolContext."""

from clotho.entries.items import Item
from clotho.entries.rollout import ToolError
from clotho.environment.base import AgentResult, Environment, EnvironmentConfig, Reward
from clotho.environment.tool_context import AsyncToolContext, ToolContext

__all__ = [
    "AgentResult",
    "AsyncToolContext",
    "Environment",
    "EnvironmentConfig",
    "Item",
    "Reward",
    "ToolContext",
    "ToolError",
]
