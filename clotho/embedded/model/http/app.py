"""The routes, and how errors become answers."""

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from clotho.embedded.model.engine import Engine, EngineStopped
from clotho.embedded.model.http.chat import ChatEndpoint
from clotho.embedded.model.http.completions import CompletionEndpoint
from clotho.embedded.model.http.generate import GenerateEndpoint
from clotho.embedded.model.http.reading import BodyReader
from clotho.embedded.model.http.refusals import MOST_SHOWN, Refusal, engine_stopped, refused
from clotho.embedded.model.http.reload import ReloadEndpoint
from clotho.embedded.model.http.responses import Health, ModelCard, ModelList
from clotho.embedded.model.http.serving import Serving
from clotho.listeners.access import Access
from clotho.listeners.bodies import BodyLimits
from clotho.listeners.early_answers import EarlyAnswers
from clotho.listeners.refused import Refused

LIMITS = BodyLimits(sent_bytes=16 * 2**20, unpacked_bytes=16 * 2**20, seconds=60)


def create_app(engine: Engine, model_name: str, weights: Path, access: Access) -> Starlette:
    """The ASGI application; it starts and stops `engine`, whose weights are in the folder `weights`."""
    serving = Serving(engine, model_name)
    reader = BodyReader(LIMITS)
    created = int(time.time())

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        engine.start()
        yield
        engine.stop()

    async def health(_: Request) -> Response:
        report = Health(
            status="ok" if engine.alive else "stopped",
            model=model_name,
            weight_version=engine.policy.version,
            open_requests=engine.open_requests,
        )
        return Response(report.model_dump_json(), 200 if engine.alive else 503, media_type="application/json")

    async def models(_: Request) -> Response:
        card = ModelCard(
            id=model_name,
            created=created,
            root=model_name,
            max_model_len=engine.policy.model.architecture.max_position_embeddings,
        )
        return Response(ModelList(data=[card]).model_dump_json(), media_type="application/json")

    return Starlette(
        routes=[
            Route("/health", health, methods=["GET"]),
            Route("/v1/models", models, methods=["GET"]),
            Route("/v1/chat/completions", ChatEndpoint(serving, reader).answer, methods=["POST"]),
            Route("/v1/completions", CompletionEndpoint(serving, reader).answer, methods=["POST"]),
            Route("/collective_rpc", ReloadEndpoint(engine, weights, reader).answer, methods=["POST"]),
            Route("/inference/v1/generate", GenerateEndpoint(serving, reader).answer, methods=["POST"]),
        ],
        exception_handlers={
            Refusal: _refused,
            HTTPException: _refused_by_route,
            EngineStopped: _engine_stopped,
            Exception: _failed,
        },
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


async def _refused(_: Request, error: Exception) -> Response:
    assert isinstance(error, Refusal)
    return error.response()


async def _refused_by_route(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    message = f"{request.method[:MOST_SHOWN]} {request.url.path[:MOST_SHOWN]}: {error.detail}"
    return Refusal(error.status_code, message, code="unknown_url").response()


async def _engine_stopped(_: Request, __: Exception) -> Response:
    return engine_stopped().response()


async def _failed(_: Request, __: Exception) -> Response:
    return Refusal(500, "The model server failed; its log says why.", type="server_error").response()
