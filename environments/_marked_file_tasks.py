"""The file tasks where a recording provider marks commands: the verifier's log tells how often each ran."""

from clotho.environment import AgentResult, Item, Reward, ToolContext
from clotho.plugins.demo.execution_markers import with_marks
from environments.file_tasks import FileTasks


class MarkedFileTasks(FileTasks):
    """The file tasks, whose rewards carry the marks of their commands."""

    async def compute_reward(self, item: Item, result: AgentResult, ctx: ToolContext) -> Reward:
        return await with_marks(await super().compute_reward(item, result, ctx), ctx)
