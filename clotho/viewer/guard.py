"""What every answer of the viewer has, and what every request is checked for."""

import secrets
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

HOSTS = ("127.0.0.1", "localhost", "::1")
POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "form-action 'self'",
        "base-uri 'none'",
        "frame-ancestors 'none'",
    )
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "x-frame-options": "DENY",
    "cache-control": "no-store",
}


class Guard:
    """Refuses names that aren't this machine's, so that no other site can read here by DNS rebinding.

    Requests that change something come from the viewer's own pages.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        if (refusal := refused(scope["method"], Headers(scope=scope))) is not None:
            return await PlainTextResponse(refusal, 403)(scope, receive, send_guarded)
        await self._app(scope, receive, send_guarded)


def refused(method: str, headers: Headers) -> str | None:
    """Why a request is refused; None if it isn't."""
    host = headers.get("host", "")
    if _name(host) not in HOSTS:
        return "this server answers to 127.0.0.1 and localhost only"
    if method in ("GET", "HEAD"):
        return None
    origin, site = headers.get("origin"), headers.get("sec-fetch-site")
    if origin is None or urlsplit(origin).netloc.lower() != host.lower() or site not in (None, "same-origin"):
        return "only the viewer's own pages may do this"
    return None


def new_token() -> str:
    return secrets.token_urlsafe(24)


def is_token(given: str, token: str) -> bool:
    return secrets.compare_digest(given.encode(), token.encode())


def _name(host: str) -> str:
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""
