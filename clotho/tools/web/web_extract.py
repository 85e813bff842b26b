"""The `web_extract` tool: the text of documents of an offline corpus."""

from clotho.errors import InvalidInput, ServiceRejected
from clotho.tools.results import answer
from clotho.tools.schemas import object_schema
from clotho.tools.tool import Arguments, CallContext, Tool, ToolOutcome, ToolSettings
from clotho.tools.web import corpus

MOST_URLS = 5
MOST_CHARS = 18_000
"""Characters of one document: all of a call's stay below the bound on results."""
CUT = "\n[… cut at {:,} of {:,} characters]"
ONLINE = "documents are read from offline corpora only: set `web` with one"


class WebExtract(Tool):
    name = "web_extract"
    toolset = "web"
    sandboxed = False
    changes_workspace = False
    description = f"Read the text of up to {MOST_URLS} pages, such as web_search has found, by their URLs."
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

    def missing(self, settings: ToolSettings) -> str | None:
        return ONLINE if settings.web is None or settings.web.corpus is None else None

    async def run(self, arguments: Arguments, context: CallContext) -> ToolOutcome:
        web = context.settings.web
        if web is None or web.corpus is None:
            raise ServiceRejected(f"web_extract: {ONLINE}")
        try:
            results = [await corpus.in_thread(_read, web.corpus, url) for url in arguments["urls"]]
        except InvalidInput as error:  # of the run, not of the model
            raise ServiceRejected(str(error)) from error
        return answer(results=results)


def _read(folder: str, url: str) -> dict[str, str | None]:
    found = corpus.document(folder, url)
    if found is None:
        return {"url": url, "title": "", "content": "", "error": "No such page"}
    title, text = found
    cut = text if len(text) <= MOST_CHARS else text[:MOST_CHARS] + CUT.format(MOST_CHARS, len(text))
    return {"url": url, "title": title, "content": cut, "error": None}
