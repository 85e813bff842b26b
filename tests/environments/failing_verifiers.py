"""Environments whose verification goes wrong, each in its own way."""

import math

from clotho.environment import AgentResult, Environment, EnvironmentConfig, Item, ToolContext


class FailingConfig(EnvironmentConfig):
    enabled_toolsets: tuple[str, ...] | None = ("terminal",)


class Failing(Environment):
    config_class = FailingConfig

    async def get_next_item(self) -> Item:
        return {}

    def format_prompt(self, item: Item) -> str:
        return "task"


class Raises(Failing):
    def compute_reward(self, item: Item, result: AgentResult, ctx: ToolContext) -> float:
        raise ValueError("the author's mistake")


class NotANumber(Failing):
    def compute_reward(self, item: Item, result: AgentResult, ctx: ToolContext) -> float:
        return math.nan


class NoReward(Failing):
    def compute_reward(self, item: Item, result: AgentResult, ctx: ToolContext) -> str:
        return "good"


class Swallows(Failing):
    """Takes any failure of the sandbox for a wrong answer: it must not become a reward of zero."""

    def compute_reward(self, item: Item, result: AgentResult, ctx: ToolContext) -> float:
        try:
            ctx.write_bytes("/dev/null/impossible", b"x")
        except Exception:
            return 0.0
        return 1.0


class NoFiles(Failing):
    def hidden_files(self, item: Item) -> dict[str, str]:
        raise ValueError("the author's missing file")

    def compute_reward(self, item: Item, result: AgentResult, ctx: ToolContext) -> float:
        ctx.terminal("true")
        return 1.0


class Undecided(Failing):
    """Its commands differ from attempt to attempt; the first attempt is told from the second by what it left."""

    attempts = 0

    def compute_reward(self, item: Item, result: AgentResult, ctx: ToolContext) -> float:
        type(self).attempts += 1
        said = ctx.terminal(f"echo attempt {self.attempts}")["output"]
        if self.attempts == 1:
            raise RuntimeError("not yet")
        return float(said.strip() == f"attempt {self.attempts}")


class WritesItsTest(Failing):
    """Puts a file of its own where the agent may have made that impossible."""

    def compute_reward(self, item: Item, result: AgentResult, ctx: ToolContext) -> float:
        ctx.write_bytes("/work/test.py", b"print('passed')\n")
        return float(ctx.terminal("python3 /work/test.py")["output"] == "passed\n")


class RunsTheAgentsScript(Failing):
    def compute_reward(self, item: Item, result: AgentResult, ctx: ToolContext) -> float:
        ran = ctx.terminal("bash /work/run.sh")
        listed = ctx.terminal("ls")
        return float(ran["output"] == "passed\n" and listed["exit_code"] == 0)
