"""Client of Atropos' trainer API."""

import asyncio
import gzip
import json
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import httpx

from clotho.errors import GroupRejected, InvalidInput, Rejection, Unavailable
from clotho.escaping import truncate_middle
from clotho.listeners.tokens import TokenAuth

TIMEOUT = 120.0
COMPRESSED_FROM = 1024
TRY_AGAIN = frozenset({401, 403, 408, 425, 429})
"""Refusals that aren't the group's fault: with a wrong token, all groups would be lost."""
LONGEST_WAIT = 10.0


class ApiUnavailable(Unavailable):
    """The API can't answer now."""


class EnvUnknown(ApiUnavailable):
    """The API is there and doesn't know this environment: it was restarted, or has no trainer yet."""


@dataclass(frozen=True)
class Receipt:
    """The API's acknowledgement of a group."""

    duplicate: bool
    buffered: bool
    """True if the group waits there for rows that would fill one of the registered size."""


class TrainerApi:
    """The endpoints of the API at `url`. Raises ApiUnavailable for outages of any kind."""

    def __init__(self, url: str, token: str | None = None) -> None:
        """`token` is shown with every request; without one, that of a server of this machine's user.

        Raises InvalidInput for a URL that holds one: URLs are shown.
        """
        if httpx.URL(url).userinfo:
            raise InvalidInput("the URL of the trainer's API holds credentials: name the token's variable")
        self.url = url.rstrip("/")
        self._client = httpx.AsyncClient(base_url=self.url, timeout=TIMEOUT, auth=TokenAuth(token))

    async def aclose(self) -> None:
        await self._client.aclose()

    async def get(self, path: str) -> dict[str, Any]:
        return await self._json("GET", path)

    async def post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        return await self._json("POST", path, body)

    async def status(self, env_id: int) -> dict[str, Any]:
        """The environment's status. Raises EnvUnknown where the API has no such environment."""
        with suppress(ApiUnavailable):
            return await self._json("GET", "/status-env", {"env_id": env_id})
        # atroposlib answers 500 for an unknown number: if this succeeds, the API is up
        await self.get("/status")
        try:
            # the first time it may have been a cut connection
            return await self._json("GET", "/status-env", {"env_id": env_id})
        except ApiUnavailable as error:
            raise EnvUnknown(f"the API at {self.url} doesn't know environment {env_id}") from error

    async def disconnect(self, env_id: int) -> None:
        await self.post("/disconnect-env", {"env_id": env_id})

    async def send(self, groups: list[dict[str, Any]]) -> Receipt:
        """Send groups. Raises GroupRejected where the API refuses them for good."""
        body, headers = await asyncio.to_thread(_encoded, groups)
        answer = await self._request("POST", "/scored_data_list", body, headers)
        said = _parsed(answer, self.url)
        return Receipt(
            duplicate=bool(said.get("duplicates") or said.get("duplicate")),
            buffered=bool(said.get("buffered")) or said.get("status") == "buffered",
        )

    async def _json(self, method: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        encoded = json.dumps(body).encode() if body is not None else b""
        headers = {"content-type": "application/json"} if body is not None else {}
        try:
            return _parsed(await self._request(method, path, encoded, headers), self.url)
        # only groups are ever given up: other requests wait for an API that answers them
        except GroupRejected as refused:
            raise ApiUnavailable(str(refused)) from refused

    async def _request(self, method: str, path: str, body: bytes, headers: dict[str, str]) -> httpx.Response:
        try:
            answer = await self._client.request(method, path, content=body, headers=headers)
        except httpx.HTTPError as error:
            raise ApiUnavailable(f"no answer from {self.url}{path}: {error!r}") from error
        if answer.is_success:
            return answer
        said = f"{self.url}{path} answered {answer.status_code}: {truncate_middle(answer.text, 300)}"
        if answer.is_client_error and answer.status_code not in TRY_AGAIN:
            raise GroupRejected(Rejection.REFUSED, said)
        raise ApiUnavailable(said)


def wait_seconds(attempt: int) -> float:
    """Seconds before the next attempt, after `attempt` outages in a row."""
    # the exponent is bounded: 2.0 ** 1024 overflows, and an outage may last for days
    return min(0.25 * 2.0 ** min(attempt, 10), LONGEST_WAIT)


def _encoded(groups: list[dict[str, Any]]) -> tuple[bytes, dict[str, str]]:
    try:
        # atroposlib accepts -Infinity, and then fails to serve the batch that it has already taken from its queue
        body = json.dumps(groups, allow_nan=False).encode()
    except ValueError as error:
        raise GroupRejected(Rejection.NON_FINITE, str(error)) from error
    headers = {"content-type": "application/json"}
    if len(body) >= COMPRESSED_FROM:
        body = gzip.compress(body, compresslevel=1)
        headers["content-encoding"] = "gzip"
    return body, headers


def _parsed(answer: httpx.Response, url: str) -> dict[str, Any]:
    try:
        said = answer.json()
    except ValueError as error:
        raise ApiUnavailable(f"{url} answered something that isn't JSON: {answer.text[:100]!r}") from error
    if not isinstance(said, dict):
        raise ApiUnavailable(f"{url} answered {said!r:.100}")
    return said
