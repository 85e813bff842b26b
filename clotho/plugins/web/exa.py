"""Exa: POST /search."""

from typing import Any

import httpx

from clotho.plugins.web.provider import Found, found

MOST_CHARACTERS = 500
OF_THE_QUERY = ("INVALID_REQUEST", "INVALID_REQUEST_BODY", "PROHIBITED_CONTENT")


class Exa:
    url = "https://api.exa.ai"
    key_variable = "EXA_API_KEY"

    def request(self, base: str, key: str, query: str, limit: int) -> httpx.Request:
        body = {"query": query, "numResults": limit, "contents": {"text": {"maxCharacters": MOST_CHARACTERS}}}
        return httpx.Request("POST", f"{base}/search", json=body, headers={"x-api-key": key})

    def results(self, answer: Any) -> list[Found]:
        return found(answer["results"], "text")

    def refuses_query(self, status: int, answer: Any) -> bool:
        return answer["tag"] in OF_THE_QUERY
