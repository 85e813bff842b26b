"""The rollout API over HTTP. Each request is idempotent: it may be sent again after any answer, or none."""

from functools import partial
from typing import Annotated, Any, cast

from clotho_client.orders import (
    ClaimOrder,
    Failure,
    Fetch,
    GroupAnswer,
    GroupOrder,
    OrderedGroups,
)
from fastapi import APIRouter, Depends, FastAPI, HTTPException, Query
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic_core import from_json
from starlette.exceptions import HTTPException as StarletteHTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp
from temporalio.service import RPCError

from clotho.errors import ClothoError, InvalidInput, Unavailable
from clotho.listeners.access import Access
from clotho.listeners.bodies import Bodies, BodyLimits
from clotho.listeners.guarded import guarded
from clotho.listeners.refused import Refused
from clotho.plugins.orders.ordered_run import NotOrdered
from clotho.plugins.orders.ordering import Orders
from clotho.plugins.orders.run_order import CheckedRunOrder

TRY_AGAIN = {"retry-after": "2"}
REFUSALS = {
    401: "No token, or another one.",
    403: "A web page asks, or the server is addressed by a name that it doesn't know.",
    404: "No such run or group.",
    409: "The name stands for something else, or the run can't be as asked; or the group isn't finished.",
    413: "The body is larger than 16 MiB, or has more values than such a body should.",
    422: "Fields that don't fit.",
    503: "The store or Temporal is away: ask again.",
}
# the nearest base of an error counts, in whatever order these are
STATUSES: dict[type[Exception], int] = {
    NotOrdered: 404,
    InvalidInput: 409,
    Unavailable: 503,
    RPCError: 503,
    ClothoError: 500,
}


class _Body(Request):
    async def json(self) -> Any:
        """The body; Python's own parser would let half characters through, which no journal takes."""
        try:
            return from_json(await self.body(), allow_inf_nan=False)
        except ValueError as error:
            raise HTTPException(422, f"the body: {error}") from error


class _Route(APIRoute):
    def get_route_handler(self) -> Any:
        handle = super().get_route_handler()

        async def handle_body(request: Request) -> Response:
            return await handle(_Body(request.scope, request.receive))

        return handle_body


def _served(request: Request) -> Orders:
    return cast(Orders, request.app.state.orders)


Served = Annotated[Orders, Depends(_served)]
router = APIRouter(
    route_class=_Route,
    strict_content_type=False,
    responses={status: {"model": Failure, "description": meaning} for status, meaning in REFUSALS.items()},
)


@router.put("/runs/{run}")
async def open_run(run: str, order: CheckedRunOrder, orders: Served) -> CheckedRunOrder:
    """Open a run, or check that it is the same."""
    await orders.open_run(run, order)
    return order


@router.get("/runs/{run}/groups")
async def list_groups(run: str, orders: Served) -> OrderedGroups:
    """Names that are neither acknowledged nor refused."""
    return OrderedGroups(names=await (await orders.run(run)).undelivered())


@router.put("/runs/{run}/groups/{name}")
async def order_group(run: str, name: str, order: GroupOrder, orders: Served) -> GroupAnswer:
    """Order a group, unless it was ordered."""
    return await orders.order(run, name, order)


@router.get("/runs/{run}/groups/{name}")
async def fetch_group(run: str, name: str, how: Annotated[Fetch, Query()], orders: Served) -> GroupAnswer:
    """Wait for a group, and take its rows."""
    return await (await orders.run(run)).answer(name, how)


@router.delete("/runs/{run}/groups/{name}")
async def cancel_group(run: str, name: str, orders: Served) -> GroupAnswer:
    """End a group without rows, unless they were acknowledged."""
    return await (await orders.run(run)).cancel(name)


@router.post("/runs/{run}/groups/{name}/acknowledge")
async def acknowledge_group(run: str, name: str, orders: Served) -> GroupAnswer:
    """Note that the trainer has the rows."""
    return await (await orders.run(run)).acknowledge(name)


@router.put("/runs/{run}/claims/{claim}")
async def claim_group(run: str, claim: str, order: ClaimOrder, orders: Served) -> GroupAnswer:
    """Order the next group of a sequence, unless this claim did."""
    return await orders.claim(run, claim, order)


def rollout_api(orders: Orders, access: Access, limits: BodyLimits) -> ASGIApp:
    """The ASGI application."""
    app = FastAPI(
        title="Clotho's rollout API",
        version="1",
        docs_url=None,
        redoc_url=None,
        exception_handlers={
            StarletteHTTPException: _http_refusal,
            RequestValidationError: _invalid,
            **{kind: partial(_failure, status) for kind, status in STATUSES.items()},
        },
    )
    app.state.orders = orders
    app.include_router(router)
    return guarded(app, access, Bodies(limits), _refusal)


def _refusal(refused: Refused) -> Response:
    return _failed(refused.status, str(refused.detail), refused.headers)


async def _http_refusal(_: Request, error: Exception) -> Response:
    refused = cast(StarletteHTTPException, error)
    return _failed(refused.status_code, refused.detail, dict(refused.headers or {}))


async def _invalid(_: Request, error: Exception) -> Response:
    faults = cast(RequestValidationError, error).errors()
    return _failed(422, "; ".join(f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in faults))


async def _failure(status: int, _: Request, error: Exception) -> Response:
    return _failed(status, str(error), TRY_AGAIN if status == 503 else None)


def _failed(status: int, error: str, headers: dict[str, str] | None = None) -> Response:
    return JSONResponse(Failure(error=error).model_dump(), status, headers)
