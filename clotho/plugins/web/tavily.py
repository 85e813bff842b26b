"""Tavily: POST /search."""

from typing import Any

import httpx

from clotho.plugins.web.provider import Found, found


class Tavily:
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
