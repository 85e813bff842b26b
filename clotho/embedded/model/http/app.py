"""The model server: its routes, how errors become answers, and the socket that it serves on."""

import asyncio
import signal
import socket
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from types import FrameType

import uvicorn
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from clotho.embedded.model.engine import Engine, EngineStopped
from clotho.embedded.model.http.chat import chat
from clotho.embedded.model.http.completions import complete
from clotho.embedded.model.http.generate import generate
from clotho.embedded.model.http.refusals import MOST_SHOWN, Refusal, engine_stopped, refused
from clotho.embedded.model.http.requests import RpcRequest
from clotho.embedded.model.http.serving import Serving
from clotho.embedded.model.policy import Policy
from clotho.embedded.model.process import READY
from clotho.errors import InvalidInput
from clotho.listeners.access import Access
from clotho.listeners.connections import Connection
from clotho.listeners.early_answers import EarlyAnswers
from clotho.listeners.refused import Refused

SECONDS_TO_SAY_SO = 2
"""Seconds that a shutdown leaves to the requests that it ends, to report it."""


def create_app(engine: Engine, model_name: str, weights: Path, access: Access) -> Starlette:
    """The ASGI application; it starts and stops `engine`, whose weights are in the folder `weights`."""
    serving = Serving(engine, model_name)
    created = int(time.time())
    reloading = asyncio.Lock()

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        engine.start()
        yield
        engine.stop()

    async def health(_: Request) -> Response:
        report = {
            "status": "ok" if engine.alive else "stopped",
            "model": model_name,
            "weight_version": engine.policy.version,
            "open_requests": engine.open_requests,
        }
        return JSONResponse(report, 200 if engine.alive else 503)

    async def models(_: Request) -> Response:
        card = {
            "id": model_name,
            "object": "model",
            "created": created,
            "owned_by": "clotho",
            "root": model_name,
            "parent": None,
            "max_model_len": engine.policy.model.architecture.max_position_embeddings,
        }
        return JSONResponse({"object": "list", "data": [card]})

    async def reload(request: Request) -> Response:
        """Read the server's own folder again, as vLLM's development mode does; a client can't name another."""
        await serving.read(request, RpcRequest)
        # one at a time: the engine holds one replacement
        async with reloading:
            try:
                policy = await asyncio.to_thread(engine.policy.with_weights, weights)
            except (OSError, InvalidInput) as error:
                message = f"the weights stay as they are: {error}"
                raise Refusal(409, message, code="weights_unusable") from error
            await engine.replace(policy)
        return JSONResponse({"results": [policy.version]})

    return Starlette(
        routes=[
            Route("/health", health, methods=["GET"]),
            Route("/v1/models", models, methods=["GET"]),
            Route("/v1/chat/completions", partial(chat, serving), methods=["POST"]),
            Route("/v1/completions", partial(complete, serving), methods=["POST"]),
            Route("/collective_rpc", reload, methods=["POST"]),
            Route("/inference/v1/generate", partial(generate, serving), methods=["POST"]),
        ],
        exception_handlers=dict.fromkeys((Refusal, HTTPException, EngineStopped, Exception), _refusal),
        middleware=[Middleware(EarlyAnswers), Middleware(_Guard, access)],
        lifespan=lifespan,
    )


class _Guard:
    """Lets no request through that `access` rules out."""

    def __init__(self, app: ASGIApp, access: Access) -> None:
        self._app = app
        self._access = access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            if scope["type"] == "http":
                self._access.check(Headers(scope=scope))
        except Refused as error:
            return await refused(error).response()(scope, receive, send)
        await self._app(scope, receive, send)


async def _refusal(request: Request, error: Exception) -> Response:
    match error:
        case Refusal():
            return error.response()
        case EngineStopped():
            return engine_stopped().response()
        case HTTPException():
            message = f"{request.method[:MOST_SHOWN]} {request.url.path[:MOST_SHOWN]}: {error.detail}"
            return Refusal(error.status_code, message, code="unknown_url").response()
    return Refusal(500, "The model server failed; its log says why.", type="server_error").response()


def serve(bound: socket.socket, weights: Path, model_name: str, access: Access) -> None:
    """Serve on a bound socket until SIGTERM or SIGINT, then exit. Raises OSError and InvalidInput for `weights`."""
    engine = Engine(Policy.load(weights))
    # Uvicorn raises the signal it stopped for again, once all is closed.
    signal.signal(signal.SIGTERM, _exit)
    signal.signal(signal.SIGINT, _exit)
    _Server(engine, model_name, weights, access).run(sockets=[bound])


class _Server(uvicorn.Server):
    def __init__(self, engine: Engine, model_name: str, weights: Path, access: Access) -> None:
        self._engine = engine
        super().__init__(
            uvicorn.Config(
                create_app(engine, model_name, weights, access),
                http=Connection,
                ws="none",
                proxy_headers=False,
                log_level="warning",
                timeout_graceful_shutdown=SECONDS_TO_SAY_SO,
                lifespan="on",
            )
        )

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        # only now: who reads the line may ask at once
        if self.started and sockets:
            host, port, *_ = sockets[0].getsockname()
            sys.stdout.write(f"{READY}http://{f'[{host}]' if ':' in host else host}:{port}\n")
            sys.stdout.flush()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        # first: open requests end with an error, which uvicorn then has time to send
        await asyncio.to_thread(self._engine.stop)
        await super().shutdown(sockets)


def _exit(_: int, __: FrameType | None) -> None:
    sys.exit(0)
