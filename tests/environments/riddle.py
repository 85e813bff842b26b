"""An environment that opens no sandbox: its one tool needs none, and its verifier reads the answer alone."""

from clotho.environment import AgentResult, Environment, EnvironmentConfig, Item, Reward, ToolContext


class RiddleConfig(EnvironmentConfig):
    enabled_toolsets: tuple[str, ...] | None = ("todo",)


class Riddle(Environment):
    config_class = RiddleConfig

    async def setup(self) -> None:
        self.items = iter([Item()])

    async def get_next_item(self) -> Item | None:
        return next(self.items, None)

    def format_prompt(self, item: Item) -> str:
        return "What has keys and opens no lock?"

    def compute_reward(self, item: Item, result: AgentResult, ctx: ToolContext) -> Reward:
        return Reward(score=float("piano" in str(result.messages[-1]["content"])))
