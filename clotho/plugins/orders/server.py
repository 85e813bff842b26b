"""The rollout API over HTTP."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeVar

from pydantic import BaseModel, ValidationError
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send
from temporalio.service import RPCError

from clotho.errors import ClothoError, InvalidInput, Unavailable
from clotho.frozen_model import field_errors
from clotho.listeners.access import Access
from clotho.listeners.bodies import Bodies, BodyLimits
from clotho.listeners.refused import Refused
from clotho.plugins.orders.messages import ClaimOrder, Failure, Fetch, GroupOrder, OrderedGroups, RunOrder
from clotho.plugins.orders.openapi import document
from clotho.plugins.orders.ordered_run import NotOrdered
from clotho.plugins.orders.ordering import Orders

TRY_AGAIN = {"retry-after": "2"}
Body = TypeVar("Body", bound=BaseModel)
Endpoint = Callable[[Request], Awaitable[BaseModel]]


class RolloutApi:
    """The ASGI application. Each request is idempotent: it may be sent again after any answer, or none."""

    def __init__(self, orders: Orders, access: Access, limits: BodyLimits) -> None:
        self._orders = orders
        self._access = access
        self._bodies = Bodies(limits)
        self._parsing = asyncio.Lock()
        """Held while a body is parsed, which takes up to ten times its memory."""
        group = "/runs/{run}/groups/{name}"
        routes = (
            ("PUT", "/runs/{run}", self._open),
            ("GET", "/runs/{run}/groups", self._list),
            ("PUT", group, self._order),
            ("GET", group, self._fetch),
            ("DELETE", group, self._cancel),
            ("POST", f"{group}/acknowledge", self._acknowledge),
            ("PUT", "/runs/{run}/claims/{claim}", self._claim),
        )
        self._app = Starlette(
            routes=[
                *(Route(path, partial(_answered, work), methods=[verb]) for verb, path, work in routes),
                Route("/openapi.json", _openapi),
            ]
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            self._access.check(Headers(scope=scope))
        except Refused as refused:
            return await _refused(refused)(scope, receive, send)
        await self._app(scope, receive, send)

    async def _open(self, request: Request) -> BaseModel:
        order = await self._body(request, RunOrder)
        await self._orders.open_run(request.path_params["run"], order)
        return order

    async def _order(self, request: Request) -> BaseModel:
        order = await self._body(request, GroupOrder)
        return await self._orders.order(request.path_params["run"], request.path_params["name"], order)

    async def _claim(self, request: Request) -> BaseModel:
        order = await self._body(request, ClaimOrder)
        return await self._orders.claim(request.path_params["run"], request.path_params["claim"], order)

    async def _list(self, request: Request) -> BaseModel:
        run = await self._orders.run(request.path_params["run"])
        return OrderedGroups(names=await run.undelivered())

    async def _fetch(self, request: Request) -> BaseModel:
        asked = {**request.query_params, "exclude": request.query_params.getlist("exclude")}
        how = Fetch.model_validate(asked)
        run = await self._orders.run(request.path_params["run"])
        return await run.answer(request.path_params["name"], how)

    async def _acknowledge(self, request: Request) -> BaseModel:
        run = await self._orders.run(request.path_params["run"])
        return await run.acknowledge(request.path_params["name"])

    async def _cancel(self, request: Request) -> BaseModel:
        run = await self._orders.run(request.path_params["run"])
        return await run.cancel(request.path_params["name"])

    async def _body(self, request: Request, kind: type[Body]) -> Body:
        async with self._bodies.body(request.headers, request.receive) as body, self._parsing:
            return await asyncio.to_thread(self._parsed, body, kind)

    def _parsed(self, body: bytes, kind: type[Body]) -> Body:
        return kind.model_validate_json(self._bodies.unpacked(body, ""))


async def _answered(work: Endpoint, request: Request) -> Response:
    try:
        return Response((await work(request)).model_dump_json(), media_type="application/json")
    except ValidationError as error:
        return _failed(422, field_errors(error, "the body"))
    except Refused as refused:
        return _refused(refused)
    except ClientDisconnect:
        return Response(status_code=400)
    except NotOrdered as error:
        return _failed(404, str(error))
    except InvalidInput as error:
        return _failed(409, str(error))
    except (Unavailable, RPCError) as error:
        return _failed(503, str(error), TRY_AGAIN)
    except ClothoError as error:
        return _failed(500, str(error))


async def _openapi(_: Request) -> Response:
    return Response(json.dumps(document()), media_type="application/json")


def _refused(refused: Refused) -> Response:
    return _failed(refused.status, str(refused.detail), refused.headers)


def _failed(status: int, error: str, headers: dict[str, str] | None = None) -> Response:
    return JSONResponse(Failure(error=error).model_dump(), status, headers)
