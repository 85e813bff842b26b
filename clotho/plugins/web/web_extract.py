"""The `web_extract` tool: the text of pages of the web, or of documents of an offline corpus."""

import asyncio

from clotho.errors import InvalidInput, ServiceRejected
from clotho.plugins.web import corpus, reading
from clotho.plugins.web.fetching import Fetcher
from clotho.plugins.web.settings import WebSettings
from clotho.tools.results import answer
from clotho.tools.schemas import object_schema
from clotho.tools.tool import Arguments, CallContext, Tool, ToolOutcome, ToolSettings

MOST_URLS = 5
MOST_CHARS = 18_000
"""Characters of one document: all of a call's stay below the bound on results."""
CUT = "\n[… cut at {:,} of {:,} characters]"
NOT_CONFIGURED = "the run names no provider and no corpus: set web.provider"


class WebExtract(Tool):
    name = "web_extract"
    toolset = "web"
    called_by_code = True
    sandboxed = False
    changes_workspace = False
    read_only = True
    description = (
        f"Read the text of up to {MOST_URLS} pages or PDFs, such as web_search has found, by their URLs."
    )
    parameters = object_schema(
        "urls",
        urls={
            "type": "array",
            "description": "The pages to read",
            "items": {"type": "string"},
            "minItems": 1,
            "maxItems": MOST_URLS,
        },
    )

    def __init__(self, fetcher: Fetcher | None = None) -> None:
        self._fetcher = fetcher or Fetcher()

    def missing(self, settings: ToolSettings) -> str | None:
        web = settings.of(WebSettings)
        if web is None:
            return NOT_CONFIGURED
        return reading.missing() if web.corpus is None else None

    async def run(self, arguments: Arguments, context: CallContext) -> ToolOutcome:
        if (why := self.missing(context.settings)) is not None:
            raise ServiceRejected(f"web_extract: {why}")
        web = context.settings.of(WebSettings)
        urls = arguments["urls"]
        if web is None or web.corpus is None:
            return answer(results=await asyncio.gather(*(self._page(url) for url in urls)))
        try:
            results = [await corpus.in_thread(_read, web.corpus, url) for url in urls]
        except InvalidInput as error:  # of the run, not of the model
            raise ServiceRejected(str(error)) from error
        return answer(results=results)

    async def _page(self, url: str) -> dict[str, str | None]:
        try:
            document = await self._fetcher.fetch(url)
        except InvalidInput as error:
            return {"url": url, "title": "", "content": "", "error": str(error)}
        return {"url": url, **await reading.read(document, MOST_CHARS)}


def _read(folder: str, url: str) -> dict[str, str | None]:
    found = corpus.document(folder, url)
    if found is None:
        return {"url": url, "title": "", "content": "", "error": "No such page"}
    title, text = found
    cut = text if len(text) <= MOST_CHARS else text[:MOST_CHARS] + CUT.format(MOST_CHARS, len(text))
    return {"url": url, "title": title, "content": cut, "error": None}
