"""The `delegate_task` tool: another agent does a task, and its last message is the result.

The rollout's workflow runs the other agent, as a child, before the call is made (`workflows/delegation.py`).
"""

from typing import Any

from clotho.tools.results import answer, problem, refusal
from clotho.tools.schemas import object_schema, string
from clotho.tools.tool import Arguments, CallContext, Tool, ToolOutcome, ToolSettings

NAME = "delegate_task"
NOT_DELEGATED = "Only an agent's own call can delegate a task"


class DelegateTask(Tool):
    name = NAME
    toolset = "delegation"
    sandboxed = False
    changes_workspace = False
    description = (
        "Give a task to another agent, with tools of its own, and wait until it has ended. It knows nothing of "
        "your conversation: put all that it needs into goal and context. You are shown its last message only."
    )
    parameters = object_schema(
        "goal",
        goal=string("What the other agent has to do, and what it has to report", minLength=1),
        context=string("What it needs to know: paths, findings, constraints"),
        toolsets={
            "type": "array",
            "description": "Toolsets that it needs, such as terminal or file; leave it out for all of yours",
            "items": {"type": "string"},
        },
    )

    def missing(self, settings: ToolSettings) -> str | None:
        return None if settings.delegation is not None else "the run has no settings for delegation"

    async def run(self, arguments: Arguments, context: CallContext) -> ToolOutcome:
        task = context.delegated
        if task is None:
            return refusal(NOT_DELEGATED)
        if task.refused is not None:
            return problem(task.refused)
        limit: dict[str, Any] = {} if task.limit is None else {"limit": task.limit}
        return answer(status=task.status, **limit, turns=task.turns, result=task.said)
