"""An environment whose verification waits for a file and counts how often each of its commands ran."""

from clotho.environment import AgentResult, Environment, EnvironmentConfig, Item, Reward, ToolContext

WAITS = "while [ ! -e /work/go ]; do sleep 0.05; done"


class SlowVerifierConfig(EnvironmentConfig):
    enabled_toolsets: tuple[str, ...] | None = ("terminal",)


class SlowVerifier(Environment):
    config_class = SlowVerifierConfig
    config: SlowVerifierConfig

    async def get_next_item(self) -> Item:
        return {}

    def format_prompt(self, item: Item) -> str:
        return "task"

    def compute_reward(self, item: Item, result: AgentResult, ctx: ToolContext) -> Reward:
        ctx.terminal("echo first >> /work/verified")
        ctx.terminal(f"{WAITS}; echo second >> /work/verified", timeout=600)
        lines = ctx.terminal("cat /work/verified")["output"].split()
        return Reward(score=float(lines == ["first", "second"]), log=" ".join(lines))
