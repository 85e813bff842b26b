"""A client of the rollout API, for trainers in Python."""

import time
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Self

import httpx

from clotho.errors import InvalidInput
from clotho.orders.messages import GroupAnswer, GroupOrder, OrderedGroups, OrderState, RunOrder
from clotho.runs.disturbances import Disturbance

POLL_SECONDS = 30.0
"""Seconds that one request waits for a group."""
RETRY_SECONDS = 1.0
TIMEOUT_SECONDS = 60.0


class RolloutClient:
    """Requests are sent again while the server is away: each may be repeated. For one thread."""

    def __init__(self, url: str, token: str | None = None) -> None:
        headers = {"authorization": f"Bearer {token}"} if token is not None else {}
        self._http = httpx.Client(base_url=url, headers=headers, timeout=TIMEOUT_SECONDS)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._http.close()

    def open_run(self, run: str, order: RunOrder) -> None:
        """Open the run, or check that it is the same. Raises InvalidInput with the fields that differ."""
        self._ask("PUT", f"/runs/{run}", order.model_dump_json())

    def order(self, run: str, name: str, order: GroupOrder) -> GroupAnswer:
        """Order a group, unless it was. Raises InvalidInput if the name stands for another item."""
        return self._group("PUT", run, name, body=order.model_dump_json())

    def fetch(
        self,
        run: str,
        name: str,
        *,
        wait: float = 0.0,
        step: int | None = None,
        max_lag: int | None = None,
        exclude: Sequence[Disturbance] = (),
    ) -> GroupAnswer:
        """The group as it is after at most `wait` seconds. Raises InvalidInput if it wasn't ordered."""
        asked: dict[str, Any] = {"wait": wait, "exclude": [str(kind) for kind in exclude]}
        bound = {"step": step, "max_lag": max_lag}
        asked |= {field: value for field, value in bound.items() if value is not None}
        return self._group("GET", run, name, asked=asked)

    def wait(
        self,
        run: str,
        name: str,
        *,
        step: int | None = None,
        max_lag: int | None = None,
        exclude: Sequence[Disturbance] = (),
    ) -> GroupAnswer:
        """The group once it is finished or refused, however long that takes."""
        while True:
            answer = self.fetch(run, name, wait=POLL_SECONDS, step=step, max_lag=max_lag, exclude=exclude)
            if answer.state is not OrderState.OPEN:
                return answer

    def acknowledge(self, run: str, name: str) -> GroupAnswer:
        """Note that the rows have arrived. They can still be fetched."""
        return self._group("POST", run, name, "/acknowledge")

    def cancel(self, run: str, name: str) -> GroupAnswer:
        """End the group without rows, unless they were acknowledged."""
        return self._group("DELETE", run, name)

    def unacknowledged(self, run: str) -> tuple[str, ...]:
        """Names of the run's groups that are neither acknowledged nor refused."""
        return OrderedGroups.model_validate_json(self._ask("GET", f"/runs/{run}/groups")).names

    def _group(
        self,
        method: str,
        run: str,
        name: str,
        ending: str = "",
        *,
        body: str | None = None,
        asked: Mapping[str, Any] | None = None,
    ) -> GroupAnswer:
        path = f"/runs/{run}/groups/{name}{ending}"
        return GroupAnswer.model_validate_json(self._ask(method, path, body, asked))

    def _ask(
        self, method: str, path: str, body: str | None = None, asked: Mapping[str, Any] | None = None
    ) -> bytes:
        while True:
            try:
                answer = self._http.request(method, path, content=body, params=asked)
            except httpx.TransportError:
                time.sleep(RETRY_SECONDS)
                continue
            if answer.status_code in (502, 503, 504):
                time.sleep(RETRY_SECONDS)
            elif answer.is_success:
                return answer.content
            else:
                raise InvalidInput(f"{method} {path}: {answer.status_code} {answer.text[:1_000]}")
