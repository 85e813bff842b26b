"""Firecrawl: POST /v2/search."""

from typing import Any

import httpx

from clotho.plugins.web.provider import Found, found


class Firecrawl:
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
