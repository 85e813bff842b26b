"""One search of a provider: its answer, or a failure that says whose fault it is."""

import httpx

from clotho.errors import InvalidInput, ServiceRejected, ServiceUnavailable
from clotho.plugins.web.provider import Found, SearchProvider
from clotho.plugins.web.providers import PROVIDERS
from clotho.plugins.web.settings import WebSettings
from clotho.tools.retry_after import retry_after
from clotho.tools.tool import CallContext
from clotho.untrusted import in_thread_if_long, load_json

SECONDS = 30.0
MOST_BYTES = 4 << 20
UNAVAILABLE = (404, 408, 425, 429)


async def search(settings: WebSettings, query: str, limit: int, context: CallContext) -> list[Found]:
    """Results of the run's provider.

    Raises ServiceUnavailable for an outage and 429, InvalidInput for a query that the provider refuses, and
    ServiceRejected for any other refusal: a key that is missing or wrong, a plan that is used up.
    """
    provider, name = PROVIDERS[settings.provider], settings.provider
    base = (settings.url or provider.url or "").rstrip("/")
    variable = settings.key or provider.key_variable
    key = _key(name, variable, context) if variable else ""
    request = provider.request(base, key, query, limit)
    try:
        async with httpx.AsyncClient(timeout=SECONDS, trust_env=False) as client:
            answer = await _body(client, request, name)
    except (httpx.HTTPError, httpx.InvalidURL) as error:  # whose text may quote the key
        raise ServiceUnavailable(f"{name} can't be reached: {type(error).__name__}") from None
    _require_answer(answer, provider, name)
    try:
        return await in_thread_if_long(len(answer.content), _results, provider, answer.content, limit)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ServiceUnavailable(f"{name} sent what isn't its answer: {type(error).__name__}") from error


def _results(provider: SearchProvider, content: bytes, limit: int) -> list[Found]:
    return list(provider.results(load_json(content)))[:limit]


def _key(name: str, variable: str, context: CallContext) -> str:
    """The provider's key, without the white space that files of secrets end in."""
    key = (context.variable(variable) or "").strip()
    if not key:
        raise ServiceRejected(f"{name}: environment variable {variable} is not set; it must hold its key")
    if not (key.isascii() and key.isprintable()):
        raise ServiceRejected(f"{name}: environment variable {variable} holds characters that no key has")
    return key


async def _body(client: httpx.AsyncClient, request: httpx.Request, name: str) -> httpx.Response:
    """The response with its body, which is bounded as it is unpacked."""
    response = await client.send(request, stream=True)
    content = bytearray()
    try:
        async for chunk in response.aiter_bytes():
            content += chunk
            if len(content) > MOST_BYTES:
                raise ServiceUnavailable(f"{name} sent more than {MOST_BYTES:,} bytes")
    finally:
        await response.aclose()
    # else httpx would unpack the body once more
    unpacked = {k: v for k, v in response.headers.items() if k not in ("content-encoding", "content-length")}
    return httpx.Response(response.status_code, headers=unpacked, content=bytes(content), request=request)


def _require_answer(response: httpx.Response, provider: SearchProvider, name: str) -> None:
    status = response.status_code
    if status in UNAVAILABLE or status >= 500 or 300 <= status < 400:
        raise ServiceUnavailable(f"{name} answered HTTP {status}", retry_after(response.headers))
    if status >= 400 and _refuses_query(response, provider):
        raise InvalidInput(f"The search was refused: HTTP {status}. Ask with other words")
    if status >= 400:
        raise ServiceRejected(f"{name} refused the request: HTTP {status}")


def _refuses_query(response: httpx.Response, provider: SearchProvider) -> bool:
    try:
        return provider.refuses_query(response.status_code, load_json(response.content))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return False  # the answer of something else, such as a proxy
