"""The interface for environment authors: Environment, AgentResult, Reward, ToolContext and `@tool`."""

from clotho.environment.declarations import StatefulTools, tool
from clotho.environment.environment import AgentResult, Environment, EnvironmentConfig, Reward, Solution
from clotho.environment.evaluated import EvaluatedItem, EvaluatedRollout
from clotho.environment.tool_context import AsyncToolContext, ToolContext
from clotho.rollouts.call import ToolError
from clotho.rollouts.item import Item
from clotho.sandbox.item import ItemSandbox

__all__ = [
    "AgentResult",
    "AsyncToolContext",
    "Environment",
    "EnvironmentConfig",
    "EvaluatedItem",
    "EvaluatedRollout",
    "Item",
    "ItemSandbox",
    "Reward",
    "Solution",
    "StatefulTools",
    "ToolContext",
    "ToolError",
    "tool",
]
