"""Any order of requests gets the answers of atroposlib's own application, which runs beside ours."""

import asyncio
import itertools
import tempfile
from pathlib import Path
from typing import Any

import httpx
from atroposlib.api.server import app as stock
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from starlette.datastructures import State

from clotho.listeners.access import Access
from clotho.listeners.bodies import BodyLimits
from clotho.plugins.atropos.api.queue import Queue
from clotho.plugins.atropos.api.server import AtroposApi
from tests.atropos_api.service import ENV, TRAINER, group
from tests.atropos_api.test_stock_behaviour import Call, seen

Shape = tuple[int, int | None]
ENVIRONMENTS = (
    {**ENV, "group_size": 4},
    {**ENV, "group_size": 2, "weight": 0.001, "min_batch_allocation": 0.25},
    {**ENV, "desired_name": "other", "max_token_length": 32, "min_batch_allocation": 0.5},
)
SHAPES = st.sampled_from(
    [*itertools.product((1, 2), (None, 0, 1, 2, 7)), *itertools.product((4,), (None, 0, 0, 2, 2))]
)
"""Rows of a group, and its environment, whose groups may have so many; 7 is never registered."""
NUMBERS = st.integers(0, 2)


def told(path: str, *arguments: st.SearchStrategy[Any]) -> st.SearchStrategy[tuple[Any, ...]]:
    return st.tuples(st.just(path), *arguments)


SENDING = told("/scored_data_list", st.lists(SHAPES, min_size=4, max_size=12))
STEPS = st.one_of(
    *(told(path) for path in ("/batch", "/status", "/info", "/wandb_info", "/latest_example")),
    *(told(path, NUMBERS) for path in ("/status-env", "/register-env", "/disconnect-env")),
    *(told("/scored_data", SHAPES), told("/register", st.sampled_from([4, 8])), told("/reset_data")),
)


class Requests:
    """Turns steps into requests that both answer: ours refuses some that break atroposlib's."""

    def __init__(self) -> None:
        self._groups = 0
        self._open = False
        self._connected: set[int] = set()
        self._registered = 0

    def of(self, path: str, *arguments: Any) -> list[Call]:
        match path:
            case "/scored_data" if self._open:
                return [("POST", path, self._group(arguments[0]))]
            case "/scored_data_list" if self._open:
                return [("POST", path, [self._group(shape) for shape in arguments[0]])]
            case "/status-env" if arguments[0] < self._registered and self._connected:
                return [("GET", path, {"env_id": arguments[0]})]
            case "/register-env" if self._open:
                self._connected.add(self._registered)
                self._registered += 1
                # In this order alone the sizes of groups are those of ENVIRONMENTS.
                return [("POST", path, ENVIRONMENTS[(self._registered - 1) % 3])]
            case "/disconnect-env" if self._open:
                self._connected.discard(arguments[0])
                return [("POST", path, {"env_id": arguments[0]})]
            case "/register":
                self._open = True
                return [("POST", path, {**TRAINER, "batch_size": arguments[0]}), ("GET", "/batch", None)]
            case "/batch" if not self._open:
                return []
            case "/reset_data":
                self.__init__()  # type: ignore[misc]
                return [("GET", path, None)]
            case "/batch" | "/status" | "/info" | "/wandb_info" | "/latest_example":
                return [("GET", path, None)]
        return []

    def _group(self, shape: Shape) -> dict[str, object]:
        self._groups += 1
        made = group(self._groups, shape[0], env_id=shape[1])
        del made["group_id"]
        return made


async def answers(app: Any, calls: list[Call]) -> list[Any]:
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
        found = [await client.request(method, path, json=body) for method, path, body in calls]
    return [(*call[:2], answer.status_code, seen(answer)) for call, answer in zip(calls, found, strict=True)]


@settings(phases=[Phase.generate], max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(st.tuples(SENDING, STEPS, STEPS, STEPS), max_size=10))
def test_any_order_of_requests_is_answered_as_by_stock(rounds: list[tuple[tuple[Any, ...], ...]]) -> None:
    requests = Requests()
    begin, end = [("/register", 8), ("/register-env", 0)], [("/batch",), ("/status",), ("/status-env", 0)] * 5
    steps = [*begin, *itertools.chain.from_iterable(rounds), *end]
    calls = [call for step in steps for call in requests.of(*step)]
    stock.state = State()
    with tempfile.TemporaryDirectory() as folder:
        queue = Queue(Path(folder, "queue.sqlite"))
        ours = AtroposApi(queue, Access(), BodyLimits(10**7, 10**7, 10))
        found, expected = asyncio.run(both(ours, calls))
        queue.close()
    assert found == expected


async def both(ours: Any, calls: list[Call]) -> tuple[list[Any], list[Any]]:
    return await answers(ours, calls), await answers(stock, calls)
