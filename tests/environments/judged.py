"""A task whose first verification fails after it has asked the judge."""

from pathlib import Path

from clotho.environment import AgentResult, Environment, EnvironmentConfig, Item, Reward, ToolContext


class JudgedConfig(EnvironmentConfig):
    enabled_toolsets: tuple[str, ...] | None = ()
    attempts: str
    """A file that grows by a line with each verification."""


class Judged(Environment):
    config_class = JudgedConfig
    config: JudgedConfig

    async def get_next_item(self) -> Item | None:
        return {"prompt": "Say something."}

    def compute_reward(self, item: Item, result: AgentResult, ctx: ToolContext) -> Reward:
        verdict = ctx.ask_judge("Is it right?")
        attempts = Path(self.config.attempts)
        with attempts.open("a") as file:
            file.write(f"{verdict}\n")
        if len(attempts.read_text().splitlines()) == 1:
            raise RuntimeError("the first verification fails")
        return Reward(score=float(verdict == "Yes."))
