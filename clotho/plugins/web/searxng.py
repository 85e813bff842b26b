"""SearXNG: GET /search of an installation that allows the format json."""

from typing import Any

import httpx

from clotho.plugins.web.provider import Found, found


class SearXNG:
    url = None
    key_variable = None

    def request(self, base: str, key: str, query: str, limit: int) -> httpx.Request:
        return httpx.Request("GET", f"{base}/search", params={"q": query, "format": "json"})

    def results(self, answer: Any) -> list[Found]:
        return found(answer["results"], "content")

    def refuses_query(self, status: int, answer: Any) -> bool:
        return status == 400
