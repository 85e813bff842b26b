"""The `clarify` tool: a question to the user, whose place the run's settings take."""

from clotho.tools.results import answer, problem
from clotho.tools.schemas import object_schema, string
from clotho.tools.tool import Arguments, CallContext, Tool, ToolOutcome

MOST_CHOICES = 4


class Clarify(Tool):
    name = "clarify"
    toolset = "clarify"
    sandboxed = False
    changes_workspace = False
    description = (
        f"Ask the user a question that you can't answer yourself, with up to {MOST_CHOICES} choices or none. "
        "Ask only where a wrong guess would waste the work."
    )
    parameters = object_schema(
        "question",
        question=string("The question"),
        choices={
            "type": "array",
            "description": "Answers to choose from; leave it out for an open question",
            "items": {"type": "string"},
            "maxItems": MOST_CHOICES,
        },
    )

    async def run(self, arguments: Arguments, context: CallContext) -> ToolOutcome:
        question = arguments["question"].strip()
        if not question:
            return problem("The question is empty")
        choices = [each.strip() for each in arguments.get("choices") or [] if each.strip()]
        return answer(
            question=question, choices_offered=choices or None, user_response=context.settings.clarify
        )
