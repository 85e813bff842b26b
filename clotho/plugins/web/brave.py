"""Brave: GET /res/v1/web/search."""

from typing import Any

import httpx

from clotho.plugins.web.provider import Found, found


class Brave:
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
