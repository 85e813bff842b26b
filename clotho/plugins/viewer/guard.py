"""What every answer of the viewer has, and what every request is checked for."""

import secrets
from urllib.parse import quote, urlencode

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from clotho.listeners.access import PageAccess
from clotho.listeners.refused import Refused

TOKEN = "token"
"""The parameter of an address that has the token."""
UNKNOWN = "This browser hasn't shown the token: open the address that `clotho view` printed."
# pages hold hostile texts: markup that got through would still load and run nothing
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
    """Lets requests through that `access` allows; the token in an address becomes a cookie of the browser."""

    def __init__(self, app: ASGIApp, access: PageAccess) -> None:
        self._app = app
        self._access = access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        if (entered := self._entered(Request(scope))) is not None:
            return await entered(scope, receive, send_guarded)
        try:
            self._access.check_page(scope["method"], Headers(scope=scope))
        except Refused as refused:
            detail = UNKNOWN if refused.status == 401 else str(refused.detail)
            answer = PlainTextResponse(detail, refused.status, refused.headers)
            return await answer(scope, receive, send_guarded)
        await self._app(scope, receive, send_guarded)

    def _entered(self, request: Request) -> Response | None:
        """The answer to an address with the right token, which leads to the same page without it."""
        given = request.query_params.get(TOKEN)
        if self._access.token is None or given is None or not self._access.is_token(given):
            return None
        # A path of two slashes would be the address of another host.
        path = "/" + quote(request.scope["path"].lstrip("/"))
        query = urlencode(
            [(name, value) for name, value in request.query_params.multi_items() if name != TOKEN]
        )
        # without the token: links, bookmarks and pictures of the page don't show it
        headers = {"location": f"{path}?{query}" if query else path, "set-cookie": self._access.cookie()}
        return Response(status_code=303, headers=headers)


def new_token() -> str:
    return secrets.token_urlsafe(24)


def is_token(given: str, token: str) -> bool:
    return secrets.compare_digest(given.encode(), token.encode())
