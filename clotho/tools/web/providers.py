"""The search providers by name."""

from clotho.tools.web.brave import Brave
from clotho.tools.web.exa import Exa
from clotho.tools.web.firecrawl import Firecrawl
from clotho.tools.web.provider import SearchProvider
from clotho.tools.web.searxng import SearXNG
from clotho.tools.web.tavily import Tavily

PROVIDERS: dict[str, SearchProvider] = {
    "brave": Brave(),
    "exa": Exa(),
    "firecrawl": Firecrawl(),
    "searxng": SearXNG(),
    "tavily": Tavily(),
}
