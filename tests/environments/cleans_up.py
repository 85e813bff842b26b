"""Environments whose verification cleans up after itself, as some of the in-memory design do."""

from clotho.environment import AgentResult, Environment, EnvironmentConfig, Item, ToolContext


class CleansUpConfig(EnvironmentConfig):
    enabled_toolsets: tuple[str, ...] | None = ("terminal",)


class CleansUp(Environment):
    config_class = CleansUpConfig

    async def get_next_item(self) -> Item:
        return {}

    def format_prompt(self, item: Item) -> str:
        return "task"

    def compute_reward(self, item: Item, result: AgentResult, ctx: ToolContext) -> float:
        try:
            return float(ctx.terminal("echo 0.5")["output"])
        finally:
            ctx.cleanup()


class CleansUpAsync(CleansUp):
    async def compute_reward(  # type: ignore[override]
        self, item: Item, result: AgentResult, ctx: ToolContext
    ) -> float:
        try:
            return float((await ctx.aio.terminal("echo 0.5"))["output"])
        finally:
            await ctx.aio.cleanup()


class UsesItAfterwards(CleansUp):
    def compute_reward(self, item: Item, result: AgentResult, ctx: ToolContext) -> float:
        score = float(ctx.terminal("echo 0.5")["output"])
        ctx.cleanup()
        ctx.terminal("true")
        return score


class LooksAgain(CleansUp):
    def compute_reward(self, item: Item, result: AgentResult, ctx: ToolContext) -> float:
        score = super().compute_reward(item, result, ctx)
        try:
            ctx.terminal("true")
        except RuntimeError:
            return score
        return 0.0
