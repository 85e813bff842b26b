"""Requests of the rollout API, as its clients send them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from clotho.plugins.orders.messages import ClaimOrder, Fetch, GroupOrder, RunOrder

POLL_SECONDS = 30.0
"""Seconds that one request waits for a group."""
RETRY_SECONDS = 1.0
TIMEOUT_SECONDS = 60.0
AWAY = (502, 503, 504)
"""Statuses after which a request is sent again."""


@dataclass(frozen=True)
class Ask:
    """One request."""

    method: str
    path: str
    body: str | None = None
    asked: Mapping[str, Any] = field(default_factory=dict)
    """Fields of the query."""


def open_run(run: str, order: RunOrder) -> Ask:
    return Ask("PUT", f"/runs/{run}", order.model_dump_json())


def order(run: str, name: str, order: GroupOrder) -> Ask:
    return Ask("PUT", f"/runs/{run}/groups/{name}", order.model_dump_json())


def claim(run: str, claim: str, order: ClaimOrder) -> Ask:
    return Ask("PUT", f"/runs/{run}/claims/{claim}", order.model_dump_json())


def fetch(run: str, name: str, how: Fetch) -> Ask:
    asked = how.model_dump(mode="json", exclude_none=True)
    return Ask("GET", f"/runs/{run}/groups/{name}", asked=asked)


def acknowledge(run: str, name: str) -> Ask:
    return Ask("POST", f"/runs/{run}/groups/{name}/acknowledge")


def cancel(run: str, name: str) -> Ask:
    return Ask("DELETE", f"/runs/{run}/groups/{name}")


def unacknowledged(run: str) -> Ask:
    return Ask("GET", f"/runs/{run}/groups")
