"""The `mixture_of_agents` tool: a hard question to several models, whose answers one of them makes into one."""

import asyncio

from clotho.errors import InvalidInput
from clotho.plugins.services.asking import Asker, counted, used_up
from clotho.plugins.services.settings import ModelService, services_of
from clotho.tools.results import answer, problem
from clotho.tools.schemas import object_schema, string
from clotho.tools.tool import Arguments, CallContext, Tool, ToolOutcome, ToolSettings

TOGETHER = (
    "Several models have answered the user's question below. Weigh their answers, some of which may be wrong, and "
    "write one answer that is right and complete. Don't mention the models.\n\n"
)
MOST_ANSWER_CHARS = 60_000
"""Characters of each answer that are put together."""


class MixtureOfAgents(Tool):
    name = "mixture_of_agents"
    toolset = "moa"
    sandboxed = False
    changes_workspace = False
    description = (
        "Ask several models a hard question at once, and get one answer out of theirs. It is slow and costly: only "
        "for what you can't work out. They see nothing but user_prompt."
    )
    parameters = object_schema("user_prompt", user_prompt=string("The whole question, with all it needs"))

    def missing(self, settings: ToolSettings) -> str | None:
        return None if services_of(settings).moa else "the run names no models to ask: set services.moa"

    async def run(self, arguments: Arguments, context: CallContext) -> ToolOutcome:
        models, prompt = services_of(context.settings).moa, arguments["user_prompt"]
        if not models:
            return problem(f"mixture_of_agents: {self.missing(context.settings)}", success=False)
        if (full := used_up(context, len(models) + 1)) is not None:
            return problem(full, success=False)
        asker = Asker.of(context)
        asked = (_answer(asker, model, prompt, number) for number, model in enumerate(models))
        # where one fails, the others' answers, which are paid for, are kept for the next attempt
        found = await asyncio.gather(*asked, return_exceptions=True)
        answers = dict[int, str]()
        for number, text in enumerate(found):
            if isinstance(text, BaseException):
                raise text
            if text:
                answers[number] = text
        if not answers:
            return counted(problem("No model answered the question", success=False), context, len(models))
        listed = "\n\n".join(
            f"Answer {number}:\n{said[:MOST_ANSWER_CHARS]}" for number, said in enumerate(answers.values(), 1)
        )
        messages = [{"role": "system", "content": TOGETHER + listed}, {"role": "user", "content": prompt}]
        try:
            said = await asker.answer(models[0], messages, "together")
        except InvalidInput as refused:
            return counted(problem(str(refused), success=False), context, len(models) + 1)
        used = [models[number].model for number in answers]
        result = answer(success=True, response=said, models_used=used)
        return counted(result, context, len(models) + 1)


async def _answer(asker: Asker, model: ModelService, prompt: str, number: int) -> str:
    """The model's answer; empty where it refuses the question."""
    try:
        return await asker.answer(model, [{"role": "user", "content": prompt}], number)
    except InvalidInput:
        return ""
