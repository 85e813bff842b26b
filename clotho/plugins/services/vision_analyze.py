"""The `vision_analyze` tool: a question about an image, answered by a model that sees."""

from clotho.errors import InvalidInput
from clotho.plugins.services.asking import Asker, counted, used_up
from clotho.plugins.services.images import data_url, image
from clotho.plugins.services.settings import services_of
from clotho.plugins.web.fetching import Fetcher
from clotho.tools.results import answer, problem, refusal
from clotho.tools.schemas import object_schema, string
from clotho.tools.tool import Arguments, CallContext, Tool, ToolOutcome, ToolSettings


class VisionAnalyze(Tool):
    name = "vision_analyze"
    toolset = "vision"
    changes_workspace = False
    description = "Ask about an image: a file of the sandbox, an http or https URL, or a data URL."
    parameters = object_schema(
        "image_url",
        "question",
        image_url=string("Path, URL or data URL of a PNG, JPEG, GIF or WebP image"),
        question=string("What to find out; the image is described whole beside it"),
    )

    def __init__(self, fetcher: Fetcher | None = None) -> None:
        self._fetcher = fetcher or Fetcher()

    def missing(self, settings: ToolSettings) -> str | None:
        return (
            None if services_of(settings).vision else "the run names no model that sees: set services.vision"
        )

    async def run(self, arguments: Arguments, context: CallContext) -> ToolOutcome:
        service = services_of(context.settings).vision
        if service is None:
            return problem(f"vision_analyze: {self.missing(context.settings)}", success=False)
        if (full := used_up(context, 1)) is not None:
            return problem(full, success=False)
        content = await image(arguments["image_url"], context, self._fetcher)
        asked = (
            "Describe what this image shows in detail, with every text in it. Then answer this question: "
            f"{arguments['question']}"
        )
        parts = [
            {"type": "text", "text": asked},
            {"type": "image_url", "image_url": {"url": data_url(content)}},
        ]
        try:
            said = await Asker.of(context).answer(service, [{"role": "user", "content": parts}])
        except InvalidInput as refused:
            return refusal(str(refused))
        return counted(answer(success=True, analysis=said), context, 1)
