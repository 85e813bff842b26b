"""The search providers, by name: how each is asked, and what its answers hold."""

from typing import Any

import httpx

from clotho.plugins.web.provider import Found, SearchProvider, found

EXA_CHARACTERS = 500
"""Characters of a page's text that Exa is asked for: it describes the page."""
EXA_QUERY_TAGS = ("INVALID_REQUEST", "INVALID_REQUEST_BODY", "PROHIBITED_CONTENT")
"""Tags of Exa's refusals that are the query's fault."""


class Brave:
    """GET /res/v1/web/search."""

    url = "https://api.search.brave.com"
    key_variable = "BRAVE_API_KEY"

    def request(self, base: str, key: str, query: str, limit: int) -> httpx.Request:
        asked: dict[str, str | int] = {"q": query, "count": limit}
        headers = {"X-Subscription-Token": key, "Accept": "application/json"}
        return httpx.Request("GET", f"{base}/res/v1/web/search", params=asked, headers=headers)

    def results(self, answer: Any) -> list[Found]:
        return found(answer.get("web", {"results": []})["results"], "description")

    def refuses_query(self, status: int, answer: Any) -> bool:
        return status == 422 and bool(answer["error"]["code"] == "VALIDATION")


class Exa:
    """POST /search."""

    url = "https://api.exa.ai"
    key_variable = "EXA_API_KEY"

    def request(self, base: str, key: str, query: str, limit: int) -> httpx.Request:
        body = {"query": query, "numResults": limit, "contents": {"text": {"maxCharacters": EXA_CHARACTERS}}}
        return httpx.Request("POST", f"{base}/search", json=body, headers={"x-api-key": key})

    def results(self, answer: Any) -> list[Found]:
        return found(answer["results"], "text")

    def refuses_query(self, status: int, answer: Any) -> bool:
        return answer["tag"] in EXA_QUERY_TAGS


class Firecrawl:
    """POST /v2/search."""

    url = "https://api.firecrawl.dev"
    key_variable = "FIRECRAWL_API_KEY"

    def request(self, base: str, key: str, query: str, limit: int) -> httpx.Request:
        body = {"query": query, "limit": limit}
        headers = {"Authorization": f"Bearer {key}"}
        return httpx.Request("POST", f"{base}/v2/search", json=body, headers=headers)

    def results(self, answer: Any) -> list[Found]:
        return found(answer["data"].get("web", []), "description")

    def refuses_query(self, status: int, answer: Any) -> bool:
        return status == 400


class SearXNG:
    """GET /search of an installation that allows the format json."""

    url = None
    key_variable = None

    def request(self, base: str, key: str, query: str, limit: int) -> httpx.Request:
        return httpx.Request("GET", f"{base}/search", params={"q": query, "format": "json"})

    def results(self, answer: Any) -> list[Found]:
        return found(answer["results"], "content")

    def refuses_query(self, status: int, answer: Any) -> bool:
        return status == 400


class Tavily:
    """POST /search."""

    url = "https://api.tavily.com"
    key_variable = "TAVILY_API_KEY"

    def request(self, base: str, key: str, query: str, limit: int) -> httpx.Request:
        body = {"query": query, "max_results": limit}
        headers = {"Authorization": f"Bearer {key}"}
        return httpx.Request("POST", f"{base}/search", json=body, headers=headers)

    def results(self, answer: Any) -> list[Found]:
        return found(answer["results"], "content")

    def refuses_query(self, status: int, answer: Any) -> bool:
        return status in (400, 422)


PROVIDERS: dict[str, SearchProvider] = {
    "brave": Brave(),
    "exa": Exa(),
    "firecrawl": Firecrawl(),
    "searxng": SearXNG(),
    "tavily": Tavily(),
}
