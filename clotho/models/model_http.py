"""The HTTP side of model servers: requests, refusals, and streams of server-sent events.

Everything that a server sends is bounded, and freed of the API key, first.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import urlsplit

import aiohttp
from pydantic import BaseModel, JsonValue, ValidationError

from clotho.errors import ClothoError, ModelRejected, ModelUnavailable
from clotho.escaping import for_line, truncate_middle
from clotho.models.answers import ACCEPTED, ANSWER_BYTES, lines, read_beginning, read_whole
from clotho.models.backend import checked_base_url
from clotho.models.provider_errors import refusal
from clotho.tools.secrecy import Redactor

CONNECT_SECONDS = 10.0
END = b"[DONE]"
SPARE_EVENTS = 10_000
"""Events of a stream beside one for each token, such as keep-alives."""

Shape = TypeVar("Shape", bound=BaseModel)


@dataclass(frozen=True)
class Reply:
    """An answer of any status."""

    status: int
    body: bytes
    headers: Mapping[str, str]


class ModelHTTP:
    """One model server and one pool of connections to it. `timeout`: seconds that a whole answer may take.

    `first_token_seconds`: seconds to its first token, and of any silence later on; None: as many as `timeout`.
    `root` is the base URL without the /v1 of its OpenAI API. Raises InvalidInput for a URL with credentials in it:
    URLs are journalled and shown. Redirects aren't followed: prompts go where they were sent.
    """

    def __init__(
        self,
        base_url: str,
        api_key: str | None = None,
        timeout: float = 3600.0,
        answer_bytes: int = ANSWER_BYTES,
        first_token_seconds: float | None = None,
    ) -> None:
        self.first_token_seconds = timeout if first_token_seconds is None else first_token_seconds
        self.base_url = checked_base_url(base_url)
        self.root = self.base_url.removesuffix("/v1")
        self.redact = Redactor([api_key] if api_key else [])
        self._api_key = api_key
        self._timeout = timeout
        self._answer_bytes = answer_bytes
        self._opened: aiohttp.ClientSession | None = None

    async def get(self, url: str) -> bytes | None:
        """The body of a successful answer; None where the server has nothing there."""
        async with self._answer("GET", url) as answer:
            if answer.status == 404:
                return None
            await self._check(answer, None)
            return self._freed(await read_whole(answer, self._answer_bytes))

    async def post(self, url: str, body: dict[str, JsonValue], answer_bytes: int) -> bytes:
        """The body of a successful answer. Raises ModelUnavailable, and what an error's status stands for."""
        async with self._answer("POST", url, json=body) as answer:
            await self._check(answer, None)
            return self._freed(await read_whole(answer, answer_bytes))

    async def exchange(self, method: str, url: str, content: bytes, headers: Mapping[str, str]) -> Reply:
        """Any answer but a redirect: the whole body of a successful one, the beginning of a refusal's."""
        async with self._answer(method, url, headers=headers, data=content) as answer:
            if answer.status == 200:
                body = self._freed(await read_whole(answer, self._answer_bytes))
            else:
                body = (await self._refusal_text(answer)).encode()
            return Reply(answer.status, body, answer.headers)

    async def events(
        self, url: str, body: dict[str, JsonValue], key: str, max_tokens: int | None
    ) -> AsyncGenerator[bytes]:
        """The data of each event that the server answers a POST with, until it says that it is done.

        Raises ModelUnavailable where it breaks off before, or has no end, and what an error's status stands for.
        """
        # a server sends an event for each token at most
        left = SPARE_EVENTS + (max_tokens or 0)
        headers = {"accept-encoding": "identity", "idempotency-key": key}
        async with self._answer("POST", url, headers=headers, json=body) as answer:
            await self._check(answer, max_tokens)
            line = b""
            async for line in lines(answer, self._answer_bytes):
                if line.startswith(b"data:") and (content := line[5:].strip()):
                    if content == END:
                        return
                    if (left := left - 1) < 0:
                        raise ModelUnavailable("the model server's stream has no end")
                    yield self._freed(content)
            raise ModelUnavailable(f"the model server's stream broke off{self._said(line)}")

    @asynccontextmanager
    async def errors(self) -> AsyncIterator[None]:
        """Add the server's URL to errors that are raised within, as one line and without the key."""
        try:
            yield
        except ClothoError as error:
            error.args = (f"{for_line(self.redact(str(error)))} [{self.base_url}]",)
            # without its cause, whose text may hold the key
            raise error from None

    async def aclose(self) -> None:
        opened, self._opened = self._opened, None
        if opened is not None:
            await opened.close()

    @asynccontextmanager
    async def _answer(self, method: str, url: str, **sent: Any) -> AsyncIterator[aiohttp.ClientResponse]:
        """An answer of any status but a redirect's; what breaks off while it is read is ModelUnavailable."""
        try:
            async with self._session().request(method, url, allow_redirects=False, **sent) as answer:
                if 300 <= answer.status < 400:
                    raise _redirect(answer)
                yield answer
        except (aiohttp.ClientError, TimeoutError) as error:
            # redacted before it is cut: half a key would no longer be found
            said = truncate_middle(self.redact(f"{type(error).__name__}: {error}"), 300)
            raise ModelUnavailable(f"no answer from the model server ({said})") from None

    def _session(self) -> aiohttp.ClientSession:
        """The session, which is made at its first use: it belongs to the event loop that runs then."""
        if self._opened is None:
            authorization = {"authorization": f"Bearer {self._api_key}"} if self._api_key else {}
            self._opened = aiohttp.ClientSession(
                timeout=aiohttp.ClientTimeout(
                    total=self._timeout,
                    sock_connect=CONNECT_SECONDS,
                    sock_read=self.first_token_seconds,
                ),
                # permits bound the requests; beyond aiohttp's own limit of 100, waiting would pass for slow answers
                connector=aiohttp.TCPConnector(limit=0),
                headers={"accept-encoding": ACCEPTED, **authorization},
                # `decoded` decompresses in bounded pieces
                auto_decompress=False,
                # all runs share the session: a server's cookie would follow from one to the others
                cookie_jar=aiohttp.DummyCookieJar(),
            )
        return self._opened

    def _freed(self, body: bytes) -> bytes:
        """`body` without the API key, wherever a server reflects it: it would be journalled."""
        # decoded only with the key in it: any other body stays what was sent, byte for byte
        if self._api_key is None or self._api_key.encode() not in body:
            return body
        return self.redact(body.decode(errors="replace")).encode()

    async def _check(self, answer: aiohttp.ClientResponse, max_tokens: int | None) -> None:
        if answer.status == 200:
            return
        text = await self._refusal_text(answer)
        raise refusal(answer.status, answer.headers, text, max_tokens, self.redact)

    async def _refusal_text(self, answer: aiohttp.ClientResponse) -> str:
        content, cut = await read_beginning(answer)
        text = self.redact(content.decode(errors="replace"))
        if cut and self._api_key is not None:
            return text[: -len(self._api_key)]  # it may end in the beginning of the key
        return text

    def _said(self, rest: bytes) -> str:
        text = self.redact(rest.decode(errors="replace"))
        return f": {truncate_middle(text, 200)}" if text.strip() else ""


def _redirect(answer: aiohttp.ClientResponse) -> ModelRejected:
    try:
        parts = urlsplit(answer.headers.get("location", ""))
        host, port = parts.hostname, parts.port
    except ValueError:
        host = port = None
    where = f" to {host}{f':{port}' if port else ''}" if host else ""
    return ModelRejected(
        f"the model server answers {answer.status}, a redirect{where}, which isn't followed: give the URL of the "
        "model server itself"
    )


def read_event(kind: type[Shape], content: bytes) -> Shape:
    """An event's data; raises ModelUnavailable for what has another shape."""
    try:
        return kind.model_validate_json(content)
    except ValidationError as invalid:
        raise ModelUnavailable(
            f"the model server's answer is not understood: {first_fault(invalid)}"
        ) from None


def first_fault(invalid: ValidationError) -> str:
    error = invalid.errors(include_url=False, include_input=False, include_context=False)[0]
    return truncate_middle(f"{error['msg']} at {'.'.join(map(str, error['loc']))}", 200)


def raise_embedded(error: JsonValue) -> None:
    """Raise what an error within a stream stands for; nothing for None."""
    if error is not None:
        said = error.get("message") if isinstance(error, dict) else error
        raise refusal(status_within(error), {}, str(said))


def status_within(error: JsonValue) -> int:
    """The HTTP status that an error object names as its code, else 502."""
    code = error.get("code") if isinstance(error, dict) else None
    return code if isinstance(code, int) and 400 <= code < 600 else 502
