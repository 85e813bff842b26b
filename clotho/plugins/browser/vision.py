"""The `browser_vision` tool: a question about the page as it looks, answered by a model that sees."""

import base64
import json

from clotho.errors import InvalidInput
from clotho.plugins.browser.calls import BrowserTool
from clotho.plugins.services.asking import Asker, counted, used_up
from clotho.plugins.services.images import data_url
from clotho.plugins.services.settings import services_of
from clotho.tools.results import answer, problem, refusal
from clotho.tools.schemas import boolean, object_schema, string
from clotho.tools.tool import Arguments, CallContext, ToolOutcome, ToolSettings

NO_MODEL = "the run names no model that sees: set services.vision"


class BrowserVision(BrowserTool):
    name = "browser_vision"
    changes_workspace = False
    description = (
        "Ask about the page as it looks now, from a screenshot: for layout, pictures, charts and what the snapshot "
        "doesn't show. With annotate, refs of elements are drawn into it, for browser_click and browser_type."
    )
    parameters = object_schema(
        "question",
        question=string("What to find out"),
        annotate=boolean("true draws the refs of elements that can be acted on", default=False),
    )

    def missing(self, settings: ToolSettings) -> str | None:
        return super().missing(settings) or (None if services_of(settings).vision else NO_MODEL)

    async def run(self, arguments: Arguments, context: CallContext) -> ToolOutcome:
        service = services_of(context.settings).vision
        if service is None:
            return problem(f"browser_vision: {NO_MODEL}", success=False)
        if (full := used_up(context, 1)) is not None:
            return problem(full, success=False)

        async def taken() -> ToolOutcome:
            return await self.made(arguments, context)

        # Journalled: another screenshot would be another question, and paid again.
        page = await context.once("screenshot", taken)
        shown = json.loads(page.content)
        image = shown.pop("screenshot", None)
        if image is None:
            return page
        asked = f"This is a screenshot of a web page. Answer from what it shows: {arguments['question']}"
        parts = [
            {"type": "text", "text": asked},
            {"type": "image_url", "image_url": {"url": data_url(base64.b64decode(image))}},
        ]
        try:
            said = await Asker.of(context).answer(service, [{"role": "user", "content": parts}])
        except InvalidInput as refused:
            return refusal(str(refused)).model_copy(update={"state": page.state})
        done = counted(answer(**shown, analysis=said), context, 1)
        return done.model_copy(update={"state": {**page.state, **done.state}})
