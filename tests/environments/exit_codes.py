"""An environment whose verifier goes by what a command exits with: anything but an answer would score 0."""

from clotho.environment import AgentResult, Environment, EnvironmentConfig, Item, ToolContext


class ExitCodesConfig(EnvironmentConfig):
    enabled_toolsets: tuple[str, ...] | None = ("terminal", "file")


class ExitCodes(Environment):
    config_class = ExitCodesConfig

    async def get_next_item(self) -> Item:
        return {}

    def format_prompt(self, item: Item) -> str:
        return "task"

    def compute_reward(self, item: Item, result: AgentResult, ctx: ToolContext) -> float:
        codes = [ctx.terminal(f"sleep 0.2; grep -q right /work/line-{n}").get("exit_code") for n in (1, 2)]
        return float(codes == [0, 0])
