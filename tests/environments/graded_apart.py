"""An environment whose rewards a command gives in a sandbox that has a copy of one of the agent's files."""

from clotho.environment import AgentResult, Environment, Item, Reward, ToolContext
from clotho.failure_policy import ENVIRONMENT_ATTEMPTS
from clotho.sandbox.item import ItemSandbox
from tests.environments.failing_verifiers import FailingConfig


class GradedApartConfig(FailingConfig):
    grade: str


class GradedApart(Environment):
    config_class = GradedApartConfig
    config: GradedApartConfig

    async def get_next_item(self) -> Item:
        return {}

    def format_prompt(self, item: Item) -> str:
        return "task"

    def grading_sandbox(self, item: Item) -> ItemSandbox:
        return ItemSandbox(disk_mb=40)

    def compute_reward(self, item: Item, result: AgentResult, ctx: ToolContext) -> Reward:
        kept = ctx.read_bytes("/work/kept") or b""
        ctx.grading.write_bytes("/work/kept", kept)
        ctx.grading.terminal(self.config.grade)
        return Reward(score=float(ctx.grading.terminal("cat /work/kept")["output"]))


class Flaky(GradedApart):
    """Grades with its command three times, then raises once; the count is the process's."""

    verifications = 0

    def compute_reward(self, item: Item, result: AgentResult, ctx: ToolContext) -> Reward:
        type(self).verifications += 1
        if self.verifications <= ENVIRONMENT_ATTEMPTS:
            ctx.grading.terminal(self.config.grade)
        if self.verifications == ENVIRONMENT_ATTEMPTS + 1:
            raise ValueError("the author's flake")
        return Reward(score=1.0)
