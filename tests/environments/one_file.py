"""An environment for scripted models: the reward is what the file /work/score holds, 0 without it."""

from clotho.environment import AgentResult, Environment, EnvironmentConfig, Item, Reward, ToolContext


class OneFileConfig(EnvironmentConfig):
    enabled_toolsets: tuple[str, ...] | None = ("terminal", "file", "todo")
    max_agent_turns: int = 8
    terminal_timeout: float = 600.0
    """Commands of tests wait for what a test does meanwhile."""


class OneFile(Environment):
    config_class = OneFileConfig

    async def setup(self) -> None:
        self._next = 0

    async def get_next_item(self) -> Item:
        self._next += 1
        return {"number": self._next - 1}

    def format_prompt(self, item: Item) -> str:
        return f"task {item['number']}"

    def compute_reward(self, item: Item, result: AgentResult, ctx: ToolContext) -> Reward:
        found = ctx.read_bytes("/work/score")
        return Reward(score=float(found or b"0"), log=f"{result.turns_used} turns")
