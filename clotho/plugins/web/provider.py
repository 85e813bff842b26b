"""The interface of search providers: one request, and what its answer holds."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import httpx


@dataclass(frozen=True)
class Found:
    """One result of a search."""

    title: str
    url: str
    description: str


class SearchProvider(Protocol):
    """A service that searches the web, by one HTTP request."""

    @property
    def url(self) -> str | None:
        """Its usual address; None: every installation has its own."""

    @property
    def key_variable(self) -> str | None:
        """The environment variable that usually holds its key; None: it needs none."""

    def request(self, base: str, key: str, query: str, limit: int) -> httpx.Request: ...

    def results(self, answer: Any) -> Sequence[Found]:
        """The results in the JSON `answer`; any exception says that it is no answer of this provider."""

    def refuses_query(self, status: int, answer: Any) -> bool:
        """Whether the refusal `answer` is the query's fault; any exception says that it isn't."""


def found(results: Any, description: str) -> list[Found]:
    """Results whose field `description` describes them."""
    return [
        Found(
            title=str(each.get("title") or ""),
            url=str(each["url"]),
            description=str(each.get(description) or ""),
        )
        for each in results
    ]
