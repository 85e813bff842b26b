"""Fetches documents of the web for a model, from public addresses alone.

The model chooses the URL, and the page where it redirects to: each hop's host is resolved once, its addresses are
checked, and the connection goes to one of those.
"""

import asyncio
import socket
import ssl
import zlib
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from functools import cache

import httpx

from clotho.errors import InvalidInput, ServiceUnavailable
from clotho.plugins.web import addresses

SECONDS = 30.0
"""Seconds of a document, with all its redirects, without those in which names are resolved."""
RESOLVE_SECONDS = 30.0
"""Seconds of one host's name."""
CONNECT_SECONDS = 10.0
MOST_HOPS = 5
MOST_BYTES = 16 << 20
"""Bytes of a document, as sent and as unpacked."""
MOST_URL_CHARS = 4_096
KNOWN_HOST = "example.com"
"""A name that resolves wherever names do."""
HEADERS = {
    "User-Agent": "Mozilla/5.0 (compatible; Clotho)",
    "Accept": "text/html, application/xhtml+xml, application/pdf, text/plain;q=0.9, */*;q=0.5",
    "Accept-Language": "en, *;q=0.5",
    "Accept-Encoding": "gzip, deflate",
}


@dataclass(frozen=True)
class Document:
    url: str
    """The address after redirects."""
    content: bytes
    media_type: str
    """Lower case; empty where the server names none."""
    charset: str | None


class Fetcher:
    """Fetches documents. Tests give it other addresses that it may connect to, and another resolver."""

    def __init__(
        self,
        allowed: Callable[[str], bool] = addresses.is_public,
        resolve: addresses.Resolve = addresses.resolve,
        seconds: float = SECONDS,
        resolve_seconds: float = RESOLVE_SECONDS,
    ) -> None:
        self._allowed = allowed
        self._resolve = resolve
        self._seconds = seconds
        self._resolve_seconds = resolve_seconds

    async def fetch(self, url: str) -> Document:
        """The document at `url`.

        Raises InvalidInput for what the model is told: a refused address, a page that fails. Raises
        ServiceUnavailable where this host can't reach the web.
        """
        try:
            async with asyncio.timeout(self._seconds) as clock:
                return await self._followed(url, clock)
        except TimeoutError:
            raise InvalidInput(f"The page took more than {self._seconds:g} s") from None
        except httpx.InvalidURL as error:
            raise InvalidInput(f"No valid URL: {error}") from None
        except httpx.HTTPError as error:
            raise InvalidInput(f"The page can't be read: {type(error).__name__}") from None

    async def _followed(self, url: str, clock: asyncio.Timeout) -> Document:
        at = _web_url(url)
        for _ in range(MOST_HOPS + 1):
            async with self._response(at, clock) as response:
                if "location" not in response.headers or not 300 <= response.status_code < 400:
                    return await _document(at, response)
                at = _web_url(str(at.join(response.headers["location"])))
        raise InvalidInput(f"More than {MOST_HOPS} redirects")

    @asynccontextmanager
    async def _response(self, url: httpx.URL, clock: asyncio.Timeout) -> AsyncIterator[httpx.Response]:
        """The response of the first address that takes the connection: one that was checked."""
        # look-ups share the loop's threads: time that others' take isn't the page's
        with _stopped(clock):
            found = await self._addresses(url)
        for number, address in enumerate(found):
            request = _request(url, address)
            async with _client() as client:  # of its own: no cookie or connection passes to another host
                try:
                    response = await client.send(request, stream=True)
                except (httpx.ConnectError, httpx.ConnectTimeout):
                    if number + 1 < len(found):
                        continue
                    raise
                try:
                    yield response
                finally:
                    await response.aclose()
                return

    async def _addresses(self, url: httpx.URL) -> list[str]:
        """The addresses of the URL's host that have a route, all of which are allowed."""
        host, port = url.host, url.port or (443 if url.scheme == "https" else 80)
        try:
            async with asyncio.timeout(self._resolve_seconds):
                found = await self._resolve(host, port)
        except (OSError, UnicodeError) as error:
            await self._require_names(error)
            raise InvalidInput(f"The host {host} isn't known") from None
        if refused := [address for address in found if not self._allowed(address)]:
            raise InvalidInput(f"The host {host} has the address {refused[0]}, which isn't a public one")
        routed = [address for address in found if addresses.has_route(address)]
        # hosts without IPv6 are common; one without IPv4 is offline
        if not routed and any(":" not in address for address in found):
            raise ServiceUnavailable("this host has no route to the web")
        if not routed:
            raise InvalidInput(f"The host {host} can't be reached over IPv4")
        return routed

    async def _require_names(self, error: Exception) -> None:
        """Raise ServiceUnavailable where no name resolves, rather than this one."""
        # EAI_NONAME is a name server's answer: this name alone doesn't exist
        failed = isinstance(error, socket.gaierror) and error.errno != socket.EAI_NONAME
        if not failed and not isinstance(error, TimeoutError):
            return
        try:
            async with asyncio.timeout(2 * self._resolve_seconds):  # look-ups of others may be before it
                await self._resolve(KNOWN_HOST, 443)
        except OSError:
            raise ServiceUnavailable("this host can't resolve names of the web") from error


@contextmanager
def _stopped(clock: asyncio.Timeout) -> Iterator[None]:
    """Let no time pass on the clock."""
    loop, when = asyncio.get_running_loop(), clock.when()
    assert when is not None
    left = when - loop.time()
    clock.reschedule(None)
    try:
        yield
    finally:
        clock.reschedule(loop.time() + left)


def _web_url(text: str) -> httpx.URL:
    if len(text) > MOST_URL_CHARS:
        raise InvalidInput(f"A URL has at most {MOST_URL_CHARS:,} characters")
    url = httpx.URL(text.strip())
    try:
        host = url.host
    except UnicodeError:  # "xn--" and what is no punycode: httpx decodes it here alone
        raise InvalidInput("No valid URL: its host is no name") from None
    if url.scheme not in ("http", "https") or not host:
        raise InvalidInput("Only http and https URLs can be read")
    if url.userinfo:
        raise InvalidInput("A URL with a user name or password can't be read")
    return url.copy_with(fragment=None)


def _request(url: httpx.URL, address: str) -> httpx.Request:
    """A request for `url` that goes to `address`; TLS is checked for the host of the URL."""
    headers = {**HEADERS, "Host": url.netloc.decode("ascii")}
    server_name = {"sni_hostname": url.raw_host.decode("ascii")}
    return httpx.Request("GET", url.copy_with(host=address), headers=headers, extensions=server_name)


def _client() -> httpx.AsyncClient:
    limit = httpx.Timeout(SECONDS, connect=CONNECT_SECONDS)
    return httpx.AsyncClient(verify=_certificates(), timeout=limit, trust_env=False, follow_redirects=False)


@cache
def _certificates() -> ssl.SSLContext:
    return httpx.create_ssl_context(trust_env=False)


async def _document(url: httpx.URL, response: httpx.Response) -> Document:
    if response.status_code >= 400:
        raise InvalidInput(f"The page answered HTTP {response.status_code}")
    media_type = response.headers.get("content-type", "").partition(";")[0].strip().lower()
    return Document(str(url), await _body(response), media_type, response.charset_encoding)


async def _body(response: httpx.Response) -> bytes:
    """The body, unpacked piece by piece: neither it nor what it unpacks to passes the bound."""
    encoding = response.headers.get("content-encoding", "identity").strip().lower()
    if encoding not in ("identity", "gzip", "x-gzip", "deflate"):
        raise InvalidInput(f"The page is packed with {encoding[:40]}, which can't be read")
    # 32: zlib tells gzip from deflate by their headers
    unpack = None if encoding == "identity" else zlib.decompressobj(zlib.MAX_WBITS | 32)
    body, packed = bytearray(), 0
    async for piece in response.aiter_raw():
        packed += len(piece)
        try:
            # never a limit of 0, which zlib takes for none: a body beyond MOST_BYTES is refused below
            body += piece if unpack is None else unpack.decompress(piece, MOST_BYTES + 1 - len(body))
        except zlib.error:
            raise InvalidInput("The page is packed wrongly") from None
        if max(packed, len(body)) > MOST_BYTES:
            raise InvalidInput(f"The page has more than {MOST_BYTES >> 20} MiB")
    return bytes(body)
