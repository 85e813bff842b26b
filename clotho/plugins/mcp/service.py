"""A server by URL over streamable HTTP, its responses bounded, as messages of the `mcp` package."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import httpx2

from clotho.plugins.mcp.session import MOST_CALL_BYTES, MOST_MESSAGE_BYTES
from clotho.tools.retry_after import retry_after
from clotho.untrusted import Excessive, ValueCount

CONNECT_SECONDS = 15.0
NOT_MADE = (404, 429)
"""Statuses of a call that had no effect: its session is unknown, or there were too many calls."""
PASSING = (404, 408, 425, 429)


class Service:
    """A server by URL. Each call has a bound of its own; between calls, the server may be silent for ever."""

    def __init__(self, url: str, headers: Mapping[str, str]) -> None:
        self._url = url
        self._headers = dict(headers)
        self._transport = _Bounded()

    def begin_call(self) -> None:
        """Forget how earlier requests failed."""
        self._transport.status = self._transport.failure = self._transport.wait = None
        self._transport.refused = self._transport.unreachable = False

    @property
    def fault(self) -> tuple[str, bool]:
        """Why the conversation ended, and whether another attempt may go better."""
        failure, status = self._transport.failure, self._transport.status
        if failure is not None:
            return failure, True
        if status is not None:
            return f"it answered HTTP {status}", _passes(status)
        return "it doesn't speak MCP", False

    @property
    def wait(self) -> timedelta | None:
        """The time that the service has asked for before another attempt."""
        return self._transport.wait

    def may_have_acted(self) -> bool:
        """Whether the last call may have had an effect: not if it never connected, or was turned away."""
        return not self._transport.refused and self._transport.status not in NOT_MADE

    def outage(self) -> bool:
        """Whether the last call failed because the service can't be reached, or can't serve now."""
        return self._transport.unreachable or _passes(self._transport.status)

    @asynccontextmanager
    async def connect(self) -> AsyncIterator[tuple[Any, Any]]:
        """The streams of messages from it and to it."""
        from mcp.client.streamable_http import streamable_http_client

        # no bound on reading: streams of events are silent for long, and `call` bounds its answer
        timeout = httpx2.Timeout(CONNECT_SECONDS, read=None)
        async with (
            httpx2.AsyncClient(
                # uncompressed: the bounds count bytes as they come, and few can unpack to many
                headers={"accept-encoding": "identity", **self._headers},
                timeout=timeout,
                transport=self._transport,
                trust_env=False,
            ) as client,
            streamable_http_client(
                self._url, http_client=client, max_sse_event_size=MOST_MESSAGE_BYTES
            ) as streams,
        ):
            yield streams


def _passes(status: int | None) -> bool:
    return status is not None and (status in PASSING or status >= 500)


class _Bounded(httpx2.AsyncBaseTransport):
    """Responses of at most MOST_CALL_BYTES, and how the last request failed."""

    def __init__(self) -> None:
        self._inner = httpx2.AsyncHTTPTransport()
        self.status: int | None = None
        self.failure: str | None = None
        self.wait: timedelta | None = None
        self.refused = False
        self.unreachable = False

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        # calls are POSTs; a GET listens for notifications, and its failure says nothing of a call
        posts = request.method == "POST"
        try:
            response = await self._inner.handle_async_request(request)
        except httpx2.HTTPError as error:  # its text may quote headers
            if posts:
                self.unreachable = True
                self.refused = isinstance(error, httpx2.ConnectError | httpx2.ConnectTimeout)
                self.failure = f"it can't be reached: {type(error).__name__}"
            raise
        if posts:
            self.refused = self.unreachable = False
            self.status = response.status_code if response.status_code >= 400 else None
            self.wait = retry_after(response.headers) if _passes(self.status) else None
        if response.headers.get("content-encoding", "identity") != "identity":
            self.failure = "it sent a compressed answer, which wasn't asked for"
            raise httpx2.DecodingError(self.failure, request=request)
        assert isinstance(response.stream, httpx2.AsyncByteStream)
        events = response.headers.get("content-type", "").lower().startswith("text/event-stream")
        response.stream = _BoundedStream(response.stream, self, answers=posts and events)
        return response

    async def aclose(self) -> None:
        await self._inner.aclose()


class _BoundedStream(httpx2.AsyncByteStream):
    """A response within the bounds. Where it `answers` a call, its end before the answer is an outage."""

    def __init__(self, stream: httpx2.AsyncByteStream, transport: _Bounded, answers: bool) -> None:
        self._stream = stream
        self._transport = transport
        self._answers = answers

    async def __aiter__(self) -> AsyncIterator[bytes]:
        received, values = 0, ValueCount()
        try:
            async for chunk in self._stream:
                received += len(chunk)
                if received > MOST_CALL_BYTES:
                    raise self._refused(f"it sent more than {MOST_CALL_BYTES:,} bytes at one call")
                values.feed(chunk)
                yield chunk
        except Excessive as error:
            raise self._refused(f"it sent an answer that isn't read: {error}") from None
        except _Refused:  # an HTTPError, too, but no outage
            raise
        except httpx2.HTTPError:
            self._break_off()
            raise
        self._break_off()

    def _refused(self, failure: str) -> "_Refused":
        self._transport.failure = failure
        return _Refused(failure)

    def _break_off(self) -> None:
        """Note that the stream has ended, which matters if the call has no answer."""
        if self._answers:
            self._transport.unreachable, self._transport.failure = True, "its answer broke off"

    async def aclose(self) -> None:
        await self._stream.aclose()


class _Refused(httpx2.ReadError):
    """The rest of a response isn't read: there is too much of it."""
