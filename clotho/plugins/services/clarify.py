"""The `clarify` tool: a question to the user, answered by the run's settings, or a model."""

from clotho.plugins.services.asking import Asker, counted, used_up
from clotho.plugins.services.settings import services_of
from clotho.tools.results import answer, problem
from clotho.tools.schemas import object_schema, string
from clotho.tools.tool import Arguments, CallContext, Tool, ToolOutcome

MOST_CHOICES = 4
IN_PLACE = (
    "You take the place of a user whom an assistant asks about the task that it works on. Answer briefly, with one "
    "of the choices where there are any. Where you can't know, say: use your judgement."
)


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
        service = services_of(context.settings).clarify
        if service is not None and (full := used_up(context, 1)) is not None:
            return problem(full)
        choices = [each.strip() for each in arguments.get("choices") or [] if each.strip()]
        said = services_of(context.settings).clarify_text
        if service is not None:
            asked = "\n- ".join([question, *choices])
            messages = [{"role": "system", "content": IN_PLACE}, {"role": "user", "content": asked}]
            said = await Asker.of(context).answer(service, messages)
        done = answer(question=question, choices_offered=choices or None, user_response=said)
        return done if service is None else counted(done, context, 1)
