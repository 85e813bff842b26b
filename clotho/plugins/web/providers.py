"""The search providers by name."""

from clotho.plugins.web.brave import Brave
from clotho.plugins.web.exa import Exa
from clotho.plugins.web.firecrawl import Firecrawl
from clotho.plugins.web.provider import SearchProvider
from clotho.plugins.web.searxng import SearXNG
from clotho.plugins.web.tavily import Tavily

PROVIDERS: dict[str, SearchProvider] = {
    "brave": Brave(),
    "exa": Exa(),
    "firecrawl": Firecrawl(),
    "searxng": SearXNG(),
    "tavily": Tavily(),
}
