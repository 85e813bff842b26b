"""An environment whose rewards a command gives in a sandbox that has a copy of one of the agent's files."""

from clotho.environment import AgentResult, Environment, Item, Reward, ToolContext
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
