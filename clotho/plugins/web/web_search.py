"""The `web_search` tool: results of the run's provider, or of an offline corpus."""

from dataclasses import asdict

from clotho.errors import InvalidInput, ServiceRejected
from clotho.plugins.web import corpus
from clotho.plugins.web.provider import Found
from clotho.plugins.web.searching import search
from clotho.plugins.web.settings import WebSettings
from clotho.tools.results import answer, problem
from clotho.tools.schemas import integer, object_schema, string
from clotho.tools.tool import Arguments, CallContext, Tool, ToolOutcome, ToolSettings

DEFAULT_RESULTS, MOST_RESULTS = 5, 20
MOST_QUERY_CHARS = 400
TITLE_CHARS, DESCRIPTION_CHARS = 300, 1_000
NOT_CONFIGURED = "the run names no provider: set web.provider"


class WebSearch(Tool):
    name = "web_search"
    toolset = "web"
    called_by_code = True
    sandboxed = False
    changes_workspace = False
    read_only = True
    description = (
        "Search the web. The result has titles, URLs and short descriptions, the best first: read a page with "
        "web_extract."
    )
    parameters = object_schema(
        "query",
        query=string("What to search for", maxLength=MOST_QUERY_CHARS),
        limit=integer(
            f"How many results, at most {MOST_RESULTS}",
            default=DEFAULT_RESULTS,
            minimum=1,
            maximum=MOST_RESULTS,
        ),
    )

    def missing(self, settings: ToolSettings) -> str | None:
        return NOT_CONFIGURED if settings.of(WebSettings) is None else None

    async def run(self, arguments: Arguments, context: CallContext) -> ToolOutcome:
        if not arguments["query"].strip():
            return problem("The query is empty", success=False)
        results = [_bounded(found) for found in await _results(arguments, context)]
        found = [{**asdict(each), "position": number} for number, each in enumerate(results, 1)]
        return answer(success=True, data={"web": found})


async def _results(arguments: Arguments, context: CallContext) -> list[Found]:
    web = context.settings.of(WebSettings)
    query, limit = arguments["query"], arguments.get("limit", DEFAULT_RESULTS)
    if web is None:
        raise ServiceRejected(f"web_search: {NOT_CONFIGURED}")
    if web.corpus is None:
        return await search(web, query, limit, context)
    try:
        return await corpus.in_thread(corpus.search, web.corpus, query, limit)
    except InvalidInput as error:  # of the run, not of the model
        raise ServiceRejected(str(error)) from error


def _bounded(found: Found) -> Found:
    return Found(found.title[:TITLE_CHARS], found.url, found.description[:DESCRIPTION_CHARS])
