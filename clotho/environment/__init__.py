"""The interface for environment authors: Environment, AgentResult, Reward and ToolContext."""

from clotho.environment.environment import AgentResult, Environment, EnvironmentConfig, Reward, Solution
from clotho.environment.tool_context import AsyncToolContext, ToolContext
from clotho.rollouts.call import ToolError
from clotho.rollouts.item import Item
from clotho.sandbox.item import ItemSandbox

__all__ = [
    "AgentResult",
    "AsyncToolContext",
    "Environment",
    "EnvironmentConfig",
    "Item",
    "ItemSandbox",
    "Reward",
    "Solution",
    "ToolContext",
    "ToolError",
]
