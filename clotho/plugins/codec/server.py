"""Temporal's remote codec protocol over HTTP: POST /decode, from the pages of one Temporal UI."""

import socket
from collections.abc import Callable

from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from clotho.errors import InvalidInput
from clotho.journal import Journal
from clotho.journal.store import Store
from clotho.listeners.access import Access
from clotho.listeners.bodies import Bodies, BodyLimits
from clotho.listeners.early_answers import EarlyAnswers
from clotho.listeners.listening import Server
from clotho.listeners.refused import Refused
from clotho.plugins.codec.references import Codec

LIMITS = BodyLimits(sent_bytes=8 * 2**20, unpacked_bytes=8 * 2**20, seconds=20.0)
# decoded texts stay out of the browser's cache
HEADERS = {"cache-control": "no-store", "x-content-type-options": "nosniff"}
MOST_CONNECTIONS = 800
SECONDS_TO_FINISH = 2


class CodecServer:
    """The ASGI application. It answers this machine, and pages of the Temporal UI, whose origin `access` names.

    The UI has no field for a token, but takes any address: the token is a part of the path, /TOKEN/decode.
    """

    def __init__(self, codec: Codec, access: Access) -> None:
        self._codec = codec
        self._access = access
        self._bodies = Bodies(LIMITS)
        pages = Middleware(
            CORSMiddleware,
            allow_origins=list(access.origins),
            allow_methods=["POST"],
            allow_headers=["authorization", "content-type", "x-namespace"],
        )
        self._app = Starlette(routes=[Route("/decode", self._decode, methods=["POST"])], middleware=[pages])

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        shown, path = _split(scope["path"])
        try:
            self._access.check(Headers(scope=scope), shown)
        except Refused as refused:
            return await PlainTextResponse(str(refused.detail), refused.status)(scope, receive, send)
        await self._app({**scope, "path": path, "raw_path": path.encode()}, receive, send)

    async def _decode(self, request: Request) -> Response:
        try:
            async with self._bodies.body(request.headers, request.receive) as body:
                decoded = await self._codec.decode(self._bodies.unpacked(body, ""))
        except Refused as refused:
            return PlainTextResponse(str(refused.detail), refused.status)
        except InvalidInput as error:
            return PlainTextResponse(str(error), 400)
        except ClientDisconnect:
            return Response(status_code=400)
        return Response(decoded, media_type="application/json", headers=HEADERS)


def _split(path: str) -> tuple[str | None, str]:
    """The token at the beginning of a path, if there is something, and the rest."""
    before, slash, last = path.rpartition("/")
    return before.lstrip("/") or None, f"{slash}{last}"


def serve(bound: socket.socket, store: Store, access: Access, ready: Callable[[], None]) -> None:
    """Serve until a signal; `ready` is called once requests are answered."""
    server = Server(
        lambda: EarlyAnswers(CodecServer(Codec(Journal(store)), access)),
        ready,
        most_connections=MOST_CONNECTIONS,
        seconds_to_finish=SECONDS_TO_FINISH,
        factory=True,
    )
    server.run(sockets=[bound])
