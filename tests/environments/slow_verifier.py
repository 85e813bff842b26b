"""An environment whose verification takes a while and counts how often each of its commands ran."""

from clotho.environment import AgentResult, Environment, EnvironmentConfig, Item, Reward, ToolContext


class SlowVerifierConfig(EnvironmentConfig):
    enabled_toolsets: tuple[str, ...] | None = ("terminal",)
    seconds: float = 4.0


class SlowVerifier(Environment):
    config_class = SlowVerifierConfig
    config: SlowVerifierConfig

    async def get_next_item(self) -> Item:
        return {}

    def format_prompt(self, item: Item) -> str:
        return "task"

    def compute_reward(self, item: Item, result: AgentResult, ctx: ToolContext) -> Reward:
        ctx.terminal("echo first >> /work/verified")
        ctx.terminal(f"sleep {self.config.seconds}; echo second >> /work/verified")
        lines = ctx.terminal("cat /work/verified")["output"].split()
        return Reward(score=float(lines == ["first", "second"]), log=" ".join(lines))
