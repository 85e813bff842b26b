"""The `image_generate` tool: an image by a model, as a file of the sandbox."""

import base64

from clotho.errors import FileRefused, InvalidInput
from clotho.escaping import truncate_middle
from clotho.plugins.services.asking import Asker, counted, used_up
from clotho.plugins.services.images import decoded, media_type
from clotho.plugins.services.settings import services_of
from clotho.plugins.web.fetching import Fetcher
from clotho.tools.results import answer, problem, refusal
from clotho.tools.schemas import object_schema, string
from clotho.tools.tool import Arguments, CallContext, Tool, ToolOutcome, ToolSettings

SIZES = {"landscape": "1536x1024", "square": "1024x1024", "portrait": "1024x1536"}
MOST_PROMPT_CHARS = 4_000


class ImageGenerate(Tool):
    name = "image_generate"
    toolset = "image_gen"
    description = "Make an image from a description. The result names the file in the sandbox."
    parameters = object_schema(
        "prompt",
        prompt=string("What the image shows, in detail", maxLength=MOST_PROMPT_CHARS),
        aspect_ratio=string("The image's shape", one_of=tuple(SIZES), default="landscape"),
    )

    def __init__(self, fetcher: Fetcher | None = None) -> None:
        self._fetcher = fetcher or Fetcher()

    def missing(self, settings: ToolSettings) -> str | None:
        return None if services_of(settings).image else "no model of the run makes images: set services.image"

    async def run(self, arguments: Arguments, context: CallContext) -> ToolOutcome:
        service = services_of(context.settings).image
        if service is None:
            return problem(f"image_generate: {self.missing(context.settings)}", success=False)
        if (full := used_up(context, 1)) is not None:
            return problem(full, success=False)
        size = SIZES[arguments.get("aspect_ratio", "landscape")]
        try:
            made = await Asker.of(context).image(service, arguments["prompt"], size)
        except InvalidInput as refused:
            return refusal(str(refused))
        try:
            written = await self._written(made, context)
        except (InvalidInput, FileRefused) as error:
            return counted(problem(truncate_middle(str(error))), context, 1)
        return counted(answer(success=True, image=written), context, 1)

    async def _written(self, made: str, context: CallContext) -> str:
        """The path of the image, which `made` holds in base 64, or links to for a while."""

        async def fetched() -> ToolOutcome:
            content = (await self._fetcher.fetch(made)).content
            return ToolOutcome(content=base64.b64encode(content).decode())

        if made.startswith(("http://", "https://")):
            made = (await context.once("image-content", fetched)).content
        content = decoded(made)
        ending = media_type(content).removeprefix("image/")
        path = f"{context.settings.terminal_cwd}/image-{context.call_key[:8]}.{ending}"
        return await context.sandbox.write_file(path, content, key=context.job_key("image"))

    async def replay(self, arguments: Arguments, context: CallContext, shown: str) -> ToolOutcome:
        return await self.run(arguments, context)
