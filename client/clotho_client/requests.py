"""Requests of the rollout API, as its clients send them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from clotho_client.orders import ClaimOrder, Fetch, GroupOrder, RunOrder

POLL_SECONDS = 30.0
"""Seconds that one request waits for a group."""
RETRY_SECONDS = 1.0
TIMEOUT_SECONDS = 60.0
AWAY = (502, 503, 504)
"""Statuses after which a request is sent again."""


@dataclass(frozen=True)
class Request:
    """One request."""

    method: str
    path: str
    body: str | None = None
    query: Mapping[str, Any] = field(default_factory=dict)

    @property
    def options(self) -> dict[str, Any]:
        """Arguments of httpx beside the method and the path."""
        return {"content": self.body, "params": self.query}


def open_run(run: str, order: RunOrder) -> Request:
    return Request("PUT", f"/runs/{run}", order.model_dump_json())


def order(run: str, name: str, order: GroupOrder) -> Request:
    return Request("PUT", f"/runs/{run}/groups/{name}", order.model_dump_json())


def claim(run: str, claim: str, order: ClaimOrder) -> Request:
    return Request("PUT", f"/runs/{run}/claims/{claim}", order.model_dump_json())


def fetch(run: str, name: str, how: Fetch) -> Request:
    query = how.model_dump(mode="json", exclude_none=True)
    return Request("GET", f"/runs/{run}/groups/{name}", query=query)


def acknowledge(run: str, name: str) -> Request:
    return Request("POST", f"/runs/{run}/groups/{name}/acknowledge")


def cancel(run: str, name: str) -> Request:
    return Request("DELETE", f"/runs/{run}/groups/{name}")


def unacknowledged(run: str) -> Request:
    return Request("GET", f"/runs/{run}/groups")
