"""Environments whose verification is nothing, so that the loop alone is measured."""

from clotho.environment import AgentResult, Environment, EnvironmentConfig, Item, ToolContext


class LoopConfig(EnvironmentConfig):
    enabled_toolsets: tuple[str, ...] | None = ("terminal", "todo")
    max_agent_turns: int = 1_000


class Loop(Environment):
    config_class = LoopConfig

    async def setup(self) -> None:
        self._next = 0

    async def get_next_item(self) -> Item:
        self._next += 1
        return {"number": self._next}

    def format_prompt(self, item: Item) -> str:
        return f"task {item['number']}"

    def compute_reward(self, item: Item, result: AgentResult, ctx: ToolContext) -> float:
        return float(result.turns_used)


class Graded(Loop):
    """One whose verification reads a file of the sandbox."""

    def compute_reward(self, item: Item, result: AgentResult, ctx: ToolContext) -> float:
        return float(ctx.read_bytes("/work/score") or b"0")
