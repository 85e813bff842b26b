"""The HTTP side of token-exact endpoints: requests, refusals, and streams of server-sent events."""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import TypeVar

import aiohttp
from pydantic import BaseModel, JsonValue, ValidationError

from clotho.errors import ClothoError, ModelUnavailable, bounded
from clotho.inference.base import checked_base_url
from clotho.inference.provider_errors import located, refusal

CONNECT_SECONDS = 10.0
END = b"[DONE]"

Shape = TypeVar("Shape", bound=BaseModel)


class TokenHTTP:
    """One model server and one pool of connections to it. `timeout`: seconds that it may be silent.

    Paths are below the server's root: the base URL without the /v1 of its OpenAI API. Raises InvalidInput for a
    URL with credentials in it.
    """

    def __init__(self, base_url: str, api_key: str | None = None, timeout: float = 3600.0) -> None:
        self.base_url = checked_base_url(base_url)
        self._root = self.base_url.removesuffix("/v1")
        self._api_key = api_key
        self._timeout = timeout
        self._opened: aiohttp.ClientSession | None = None

    async def get(self, path: str) -> bytes:
        """The body of a successful answer."""
        async with self._located(), self._session().get(f"{self._root}{path}") as answer:
            await _check(answer, None)
            return await answer.read()

    async def events(
        self, path: str, body: dict[str, JsonValue], key: str, max_tokens: int | None
    ) -> AsyncGenerator[bytes]:
        """The data of each event that the server answers a POST with, until it says that it is done.

        Raises ModelUnavailable where it breaks off before, and what an error's status stands for.
        """
        request = self._session().post(f"{self._root}{path}", json=body, headers={"idempotency-key": key})
        async with self._located(), request as answer:
            await _check(answer, max_tokens)
            rest = b""
            async for received in answer.content.iter_any():
                *lines, rest = (rest + received).split(b"\n")
                for line in lines:
                    if line.startswith(b"data:") and (content := line[5:].strip()):
                        if content == END:
                            return
                        yield content
            raise ModelUnavailable(f"the model server's stream broke off{_said(rest)}")

    async def aclose(self) -> None:
        if self._opened is not None:
            await self._opened.close()

    def _session(self) -> aiohttp.ClientSession:
        """Made where it is used: it belongs to the event loop that runs."""
        if self._opened is None:
            self._opened = aiohttp.ClientSession(
                timeout=aiohttp.ClientTimeout(
                    total=None, sock_connect=CONNECT_SECONDS, sock_read=self._timeout
                ),
                connector=aiohttp.TCPConnector(limit=0),
                headers={"authorization": f"Bearer {self._api_key}"} if self._api_key else {},
            )
        return self._opened

    @asynccontextmanager
    async def _located(self) -> AsyncIterator[None]:
        try:
            yield
        except (aiohttp.ClientError, TimeoutError) as error:
            found = ModelUnavailable(f"no answer from the model server ({type(error).__name__}: {error})")
            raise located(found, self.base_url, self._api_key) from None
        except ClothoError as error:
            raise located(error, self.base_url, self._api_key) from None


async def _check(answer: aiohttp.ClientResponse, max_tokens: int | None) -> None:
    if answer.status != 200:
        content = (await answer.read()).decode(errors="replace")
        raise refusal(answer.status, answer.headers, content, max_tokens)


def read_event(kind: type[Shape], content: bytes) -> Shape:
    """An event's data; raises ModelUnavailable for what has another shape."""
    try:
        return kind.model_validate_json(content)
    except ValidationError as invalid:
        error = invalid.errors(include_url=False, include_input=False, include_context=False)[0]
        where = ".".join(map(str, error["loc"]))
        raise ModelUnavailable(
            bounded(f"the model server's answer is not understood: {error['msg']} at {where}", 300)
        ) from None


def raise_embedded(error: JsonValue) -> None:
    """Raise what an error within a stream stands for; nothing for None."""
    if error is not None:
        code = error.get("code") if isinstance(error, dict) else None
        status = code if isinstance(code, int) and code >= 400 else 502
        raise refusal(status, {}, bounded(str(error.get("message") if isinstance(error, dict) else error)))


def _said(rest: bytes) -> str:
    return f": {bounded(rest.decode(errors='replace'), 200)}" if rest.strip() else ""
