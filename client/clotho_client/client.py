"""Clients of the rollout API, for trainers in Python."""

import asyncio
import time
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self

import httpx

from clotho_client import requests
from clotho_client.errors import RequestRefused
from clotho_client.orders import (
    ClaimOrder,
    Fetch,
    GroupAnswer,
    GroupOrder,
    OrderedGroups,
    OrderState,
    RunOrder,
)
from clotho_client.requests import AWAY, POLL_SECONDS, RETRY_SECONDS, TIMEOUT_SECONDS, Request
from clotho_client.rows import Disturbance
from clotho_client.tokens import TokenAuth


class RolloutClient:
    """Requests are sent again while the server is away: each may be repeated. For one thread.

    Without a `token`, the URL's password, CLOTHO_TOKEN, or this user's file of the server's port has it.
    """

    def __init__(self, url: str, token: str | None = None) -> None:
        self._http = httpx.Client(**_options(url, token))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._http.close()

    def open_run(self, run: str, order: RunOrder) -> None:
        """Open the run, or check that it is the same. Raises RequestRefused with the fields that differ."""
        self._send(requests.open_run(run, order))

    def order(self, run: str, name: str, order: GroupOrder) -> GroupAnswer:
        """Order a group, unless it was. Raises RequestRefused if the name stands for another item."""
        return self._group(requests.order(run, name, order))

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
        """The group as it is after at most `wait` seconds. Raises RequestRefused if it wasn't ordered."""
        how = Fetch(wait=wait, step=step, max_lag=max_lag, exclude=tuple(exclude))
        return self._group(requests.fetch(run, name, how))

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
        return self._group(requests.acknowledge(run, name))

    def cancel(self, run: str, name: str) -> GroupAnswer:
        """End the group without rows, unless they were acknowledged."""
        return self._group(requests.cancel(run, name))

    def unacknowledged(self, run: str) -> tuple[str, ...]:
        """Names of the run's groups that are neither acknowledged nor refused."""
        return OrderedGroups.model_validate_json(self._send(requests.unacknowledged(run))).names

    def _group(self, request: Request) -> GroupAnswer:
        return GroupAnswer.model_validate_json(self._send(request))

    def _send(self, request: Request) -> bytes:
        while True:
            try:
                answer = self._http.request(
                    request.method, request.path, content=request.body, params=request.query
                )
            except httpx.TransportError:
                answer = None
            if (body := _body(request, answer)) is not None:
                return body
            time.sleep(RETRY_SECONDS)


class AsyncRolloutClient:
    """The same for trainers that wait for many groups in one event loop."""

    def __init__(self, url: str, token: str | None = None) -> None:
        unbounded = httpx.Limits(max_connections=None)  # each group that is waited for has one
        self._http = httpx.AsyncClient(**_options(url, token), limits=unbounded)

    async def close(self) -> None:
        await self._http.aclose()

    async def open_run(self, run: str, order: RunOrder) -> None:
        """Open the run, or check that it is the same. Raises RequestRefused with the fields that differ."""
        await self._send(requests.open_run(run, order))

    async def order(self, run: str, name: str, order: GroupOrder) -> GroupAnswer:
        """Order a group, unless it was. Raises RequestRefused if the name stands for another item."""
        return await self._group(requests.order(run, name, order))

    async def claim(self, run: str, claim: str, order: ClaimOrder) -> GroupAnswer:
        """Order the next group of a sequence, unless this claim did; the answer has its name."""
        return await self._group(requests.claim(run, claim, order))

    async def wait(self, run: str, name: str, exclude: Sequence[Disturbance] = ()) -> GroupAnswer:
        """The group once it is finished or refused, however long that takes."""
        how = Fetch(wait=POLL_SECONDS, exclude=tuple(exclude))
        while True:
            answer = await self._group(requests.fetch(run, name, how))
            if answer.state is not OrderState.OPEN:
                return answer

    async def acknowledge(self, run: str, name: str) -> GroupAnswer:
        """Note that the rows have arrived. They can still be fetched."""
        return await self._group(requests.acknowledge(run, name))

    async def cancel(self, run: str, name: str) -> GroupAnswer:
        """End the group without rows, unless they were acknowledged."""
        return await self._group(requests.cancel(run, name))

    async def _group(self, request: Request) -> GroupAnswer:
        return GroupAnswer.model_validate_json(await self._send(request))

    async def _send(self, request: Request) -> bytes:
        while True:
            try:
                answer = await self._http.request(
                    request.method, request.path, content=request.body, params=request.query
                )
            except httpx.TransportError:
                answer = None
            if (body := _body(request, answer)) is not None:
                return body
            await asyncio.sleep(RETRY_SECONDS)


def _options(url: str, token: str | None) -> dict[str, Any]:
    return {"base_url": url, "auth": TokenAuth(token), "timeout": TIMEOUT_SECONDS}


def _body(request: Request, answer: httpx.Response | None) -> bytes | None:
    """The answer's body; None if the server is away. Raises RequestRefused for a refusal."""
    if answer is None or answer.status_code in AWAY:
        return None
    if not answer.is_success:
        raise RequestRefused(f"{request.method} {request.path}: {answer.status_code} {answer.text[:1_000]}")
    return answer.content
