"""Requests to model servers, paced by processes that share a store."""

import asyncio
import math
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest
from pydantic import ValidationError
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from clotho.errors import InvalidInput, ModelUnavailable
from clotho.journal import Journal
from clotho.journal.folder import FilesystemStore
from clotho.journal.store import MeasuredStore
from clotho.models.backend import Inference, TurnCall
from clotho.models.endpoint import Endpoint, parsed_servers
from clotho.models.gate import DOWN_SECONDS, Gate, Room
from clotho.models.messages import ChatMessage
from clotho.models.model_http import ModelHTTP
from clotho.models.openai_chat import OpenAIChat
from clotho.models.pace_pages import LEASE_SECONDS, PacePages, ServerPage
from clotho.models.pacing import Pacer, pace_texts
from clotho.models.speed import Speed
from clotho.models.width import FIRST_WIDTH, LEAST_BY_HINTS, Width
from clotho.processes.load import ProcessLoad
from clotho.testing.scripted_model import serving
from clotho.worker_settings import RateLimit
from tests.support import PATIENCE_SECONDS, eventually

ANSWER = {
    "model": "m",
    "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "Hello"}}],
    "usage": {"prompt_tokens": 90, "completion_tokens": 10, "total_tokens": 100},
}
CALL = TurnCall(key="key", model="m", messages=(ChatMessage(role="user", content="Hello"),))


class NarrowServer:
    """Answers `width` requests at a time after `seconds`, and refuses the others."""

    def __init__(self, width: int, seconds: float, metrics: bytes | None = None) -> None:
        self.width, self.seconds, self.metrics = width, seconds, metrics
        self.open, self.answered, self.refused, self.asked_metrics = 0, 0, 0, 0
        routes = [
            Route("/v1/chat/completions", self._complete, methods=["POST"]),
            Route("/metrics", self._metrics),
        ]
        self.app = Starlette(routes=routes)

    async def _complete(self, request: Request) -> Response:
        await request.body()
        if self.open >= self.width:
            self.refused += 1
            return JSONResponse({"error": {"message": "too many"}}, 429, {"retry-after": "1"})
        self.open += 1
        try:
            await asyncio.sleep(self.seconds)
        finally:
            self.open -= 1
        self.answered += 1
        return JSONResponse(ANSWER)

    async def _metrics(self, request: Request) -> Response:
        self.asked_metrics += 1
        return Response(self.metrics) if self.metrics is not None else Response(status_code=404)


@asynccontextmanager
async def process(
    folder: Path, name: str, url: str, limits: dict[str, RateLimit] | None = None
) -> AsyncIterator[Pacer]:
    """The pacer of a model process, which is killed at the end."""
    http = ModelHTTP(url)

    async def metrics(server: Endpoint) -> bytes | None:
        return await http.get(f"{http.root}/metrics")

    pacer = Pacer(
        Journal(FilesystemStore(folder)), name, limits or {}, metrics, most_calls=500, load=ProcessLoad()
    )
    looking = asyncio.create_task(pacer.run())
    try:
        yield pacer
    finally:
        looking.cancel()
        await asyncio.gather(looking, return_exceptions=True)
        await http.aclose()


async def rollout(pacer: Pacer, url: str, http: ModelHTTP, over: Callable[[], bool]) -> None:
    """Ask again and again; a refused request is tried again a second later, as Temporal does."""
    backend = OpenAIChat(http)
    while not over():
        try:
            async with pacer.permit(Endpoint(base_url=url), "run/g/r0", 1) as permit:
                permit.answered(await backend.sample_turn(CALL))
        except ModelUnavailable:
            await asyncio.sleep(1.0)


@asynccontextmanager
async def rollouts(pacers: list[Pacer], url: str, each: int) -> AsyncIterator[None]:
    http = ModelHTTP(url)
    over = asyncio.Event()
    asking = [
        asyncio.create_task(rollout(pacer, url, http, over.is_set)) for pacer in pacers for _ in range(each)
    ]
    try:
        yield
    finally:
        over.set()
        for task in asking:
            task.cancel()
        await asyncio.gather(*asking, return_exceptions=True)
        await http.aclose()


def used(*pacers: Pacer) -> int:
    return sum(paced.gate.limit for pacer in pacers for paced in pacer._servers.values())


async def stays(so: Callable[[], bool], what: str) -> None:
    """Wait until it is so for several looks in a row."""
    near = 0

    async def settled() -> bool:
        nonlocal near
        await asyncio.sleep(0.5)
        near = near + 1 if so() else 0
        return near >= 10

    await eventually(settled, what, 300)


@pytest.mark.slow
async def test_processes_settle_together_at_the_width_that_a_server_takes(tmp_path: Path) -> None:
    """Its /metrics is garbage."""
    metrics = b"vllm:num_requests_waiting 1e999\nvllm:kv_cache_usage_perc -3\n\xff\x00{{{"
    server = NarrowServer(10, 0.3, metrics)
    async with serving(server) as base, AsyncExitStack() as stack:
        pacers = [await stack.enter_async_context(process(tmp_path, name, base)) for name in ("a", "b")]
        async with rollouts(pacers, base, 30):
            await stays(lambda: 8 <= used(*pacers) <= 12, "a width within 20 % of the server's")
            texts = await eventually(
                lambda: pace_texts(pacers[0]._journal, Endpoint(base_url=base)), "a page of late"
            )
            assert len(texts) == 1
            assert "requests at once" in texts[0]
            refused, answered = server.refused, server.answered
            await eventually(lambda: _true(server.answered > answered + 100), "a hundred answers", 300)
            assert server.refused - refused < server.answered - answered, "few are refused by then"


async def _true(value: bool) -> bool:
    return value


@pytest.mark.slow
async def test_a_server_that_reports_endless_queues_is_still_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("clotho.models.pacing.METRICS_TIMEOUT", PATIENCE_SECONDS)
    server = NarrowServer(100, 0.5, b"vllm:num_requests_waiting 999999999\nvllm:kv_cache_usage_perc 1\n")
    async with serving(server) as base, process(tmp_path, "a", base) as pacer, rollouts([pacer], base, 80):
        await eventually(lambda: _true(bool(server.asked_metrics)), "a look at /metrics")
        await eventually(lambda: _true(used(pacer) == LEAST_BY_HINTS), "the least width by such hints", 300)
        answered = server.answered
        await eventually(lambda: _true(server.answered > answered + 20), "more answers")


async def test_the_permits_of_a_killed_process_are_free_when_its_lease_ends(tmp_path: Path) -> None:
    server = NarrowServer(6, 0.3)
    async with serving(server) as base, process(tmp_path, "b", base) as alive:
        async with process(tmp_path, "a", base) as killed, rollouts([killed, alive], base, 20):
            await stays(lambda: 2 <= used(killed) <= 4 and 2 <= used(alive) <= 4, "a share for both")
        async with rollouts([alive], base, 20):
            await eventually(lambda: _true(used(alive) >= 5), "its share", 30 * LEASE_SECONDS)


async def test_a_permit_goes_to_the_next_when_the_one_that_waits_is_cancelled() -> None:
    gate = Gate(1, Room(500, ProcessLoad()))
    await gate.acquire("run")
    first, second, third = (asyncio.create_task(gate.acquire("run")) for _ in range(3))
    await asyncio.sleep(0)
    assert gate.waiting == 3
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    gate.release()
    second.cancel()  # it was let in, and never learns of it
    await asyncio.gather(second, return_exceptions=True)
    await third
    assert (gate.in_use, gate.waiting) == (1, 0)
    last = asyncio.create_task(gate.acquire("run"))
    await asyncio.sleep(0)
    gate.stop()
    with pytest.raises(ModelUnavailable, match="another one asks"):
        await last
    assert gate.in_use == 1


@pytest.mark.parametrize(("priority", "shares"), [(None, (10, 10)), (1, (10, 50))])
async def test_runs_share_what_a_server_takes(priority: int | None, shares: tuple[int, int]) -> None:
    """A second run doesn't wait behind all that the first has queued, nor a first one behind a busy second."""
    gate, let_in = Gate(1, Room(500, ProcessLoad())), list[str]()
    await gate.acquire("other")

    async def ask(run: str, priority: int | None) -> None:
        await gate.acquire(run, priority)
        let_in.append(run)

    waiting = [asyncio.create_task(ask("first", 5 if priority else None)) for _ in range(100)]
    await asyncio.sleep(0)
    for _ in range(sum(shares)):
        waiting.append(asyncio.create_task(ask("second", priority)))  # one at a time
        await asyncio.sleep(0)
        gate.release()
        await asyncio.sleep(0)
    assert (let_in.count("first"), let_in.count("second")) == pytest.approx(shares, abs=2)
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)


async def test_rollouts_that_have_begun_go_before_others_of_their_run() -> None:
    """In their order; other runs keep their shares."""
    gate, let_in = Gate(1, Room(500, ProcessLoad())), list[str]()
    await gate.acquire("busy")

    async def ask(run: str, name: str, begun: bool) -> None:
        await gate.acquire(run, begun=begun)
        let_in.append(name)

    asked = [("a", "a new", False), ("b", "b new", False), ("a", "a 1", True), ("a", "a 2", True)]
    waiting = [asyncio.create_task(ask(*each)) for each in asked]
    await asyncio.sleep(0)
    waiting[2].cancel()
    await asyncio.sleep(0)
    for _ in range(3):
        gate.release()
        await asyncio.sleep(0)
    await asyncio.gather(*waiting, return_exceptions=True)
    assert let_in == ["a 2", "b new", "a new"]


async def test_a_request_that_waits_for_room_holds_no_permit() -> None:
    room = Room(1, ProcessLoad())
    busy, other = Gate(5, room), Gate(1, room)
    await busy.acquire("run")
    waiting = asyncio.create_task(other.acquire("run"))
    await asyncio.sleep(0)
    assert (other.in_use, other.waiting) == (0, 1)
    busy.release()
    await waiting
    assert (busy.in_use, other.in_use) == (0, 1)


async def test_a_failing_server_drains_while_there_are_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("clotho.models.gate.DOWN_SECONDS", 10 * PATIENCE_SECONDS)
    endpoint = Endpoint(base_url="http://a/v1", more_urls=("http://b/v1",))
    alone = Endpoint(base_url="http://a/v1")
    names = [f"run/g/r{number}" for number in range(50)]

    def chosen(pacer: Pacer) -> dict[str, str]:
        return {name: pacer.choose(endpoint, name, 1).base_url for name in names}

    async with process(tmp_path, "p", "http://a/v1") as pacer, process(tmp_path, "q", "http://a/v1") as other:
        before = chosen(pacer)
        assert set(before.values()) == {"http://a/v1", "http://b/v1"}
        async with other.permit(alone, "run/g/r0", 1) as permit:
            assert permit.server == alone
        for _ in range(3):
            await fail(pacer, alone)
        assert set(chosen(pacer).values()) == {"http://b/v1"}
        await eventually(
            lambda: _true(set(chosen(other).values()) == {"http://b/v1"}), "the other process to hear of it"
        )
        assert pacer.choose(alone, "run/g/r0", 2).base_url == "http://a/v1"
        async with pacer.permit(alone, "run/g/r0", 1):
            pass
        assert chosen(pacer) == before


async def fail(pacer: Pacer, endpoint: Endpoint) -> None:
    with pytest.raises(ModelUnavailable):
        async with pacer.permit(endpoint, "run/g/r0", 1):
            raise ModelUnavailable("no answer")


async def test_requests_that_wait_for_a_server_go_elsewhere_when_it_is_down(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("clotho.models.gate.DOWN_SECONDS", 10 * PATIENCE_SECONDS)
    endpoint = Endpoint(base_url="http://a/v1", more_urls=("http://b/v1",))
    alone = Endpoint(base_url="http://a/v1")
    async with process(tmp_path, "p", "http://a/v1") as pacer:
        mine = next(
            name for name in map(str, range(50)) if pacer.choose(endpoint, name, 1).base_url == alone.base_url
        )
        served: list[str] = []

        async def waits() -> None:
            async with pacer.permit(endpoint, mine, 1) as permit:
                served.append(permit.server.base_url)

        async with AsyncExitStack() as stack:
            for _ in range(FIRST_WIDTH - 1):
                await stack.enter_async_context(pacer.permit(alone, "run/g/r0", 1))
            for number in range(3):
                with pytest.raises(ModelUnavailable):
                    async with pacer.permit(alone, "run/g/r0", 1):
                        if number == 2:
                            waiting = asyncio.create_task(waits())
                            await asyncio.sleep(0)
                        raise ModelUnavailable("no answer")
            await asyncio.wait_for(waiting, PATIENCE_SECONDS)
        assert served == ["http://b/v1"]


async def test_a_server_that_was_down_is_tried_with_one_request() -> None:
    gate = Gate(10, Room(500, ProcessLoad()))
    for _ in range(3):
        await gate.acquire("run")
        gate.fail()
        gate.release()
    now = asyncio.get_running_loop().time()
    assert gate.is_down(now)
    later = now + DOWN_SECONDS + 1
    assert gate.takes_new(later)
    await gate.acquire("run")
    assert not gate.takes_new(later)
    gate.answer(1.0)
    assert gate.takes_new(later)


async def test_runs_of_both_modes_share_a_server(tmp_path: Path) -> None:
    url = "http://127.0.0.1:9/v1"
    async with process(tmp_path, "one", url) as pacer:
        for inference in (Inference.TOKENS, Inference.CHAT, Inference.TOKENS):
            async with pacer.permit(Endpoint(base_url=url, inference=inference), "run/g/r0", 1) as permit:
                assert permit.server.inference is inference


async def test_a_process_that_stops_keeps_no_request_waiting(tmp_path: Path) -> None:
    endpoint = Endpoint(base_url="http://a/v1")
    limits = {"": RateLimit(requests_per_minute=1)}

    async def wait(pacer: Pacer) -> None:
        with pytest.raises(ModelUnavailable, match="the worker stops"):
            async with pacer.permit(endpoint, "run/g/r1", 1):
                raise AssertionError("it waits")

    async with process(tmp_path, "p", "http://a/v1", limits) as pacer:
        async with pacer.permit(endpoint, "run/g/r0", 1):
            waiting = asyncio.gather(*(wait(pacer) for _ in range(2 * FIRST_WIDTH)))
            await asyncio.sleep(0)
            pacer.stop()
            await asyncio.wait_for(waiting, PATIENCE_SECONDS)
        await wait(pacer)


def test_servers_have_shares_by_their_weights() -> None:
    urls, weights = parsed_servers("http://a/v1, http://b/v1=3")
    endpoint = Endpoint(base_url=urls[0], more_urls=urls[1:], weights=weights)
    chosen = [endpoint.server_for(f"run/g/r{number}", 1).base_url for number in range(1_000)]
    assert 680 < chosen.count("http://b/v1") < 820
    assert endpoint.server_for("run/g/r0", 1) != endpoint.server_for("run/g/r0", 2)
    assert endpoint.server_for("run/g/r0", 1) == endpoint.server_for("run/g/r0", 3)
    assert parsed_servers("http://a/v1,http://b/v1") == (("http://a/v1", "http://b/v1"), ())
    for wrong in ("http://a/v1=0", "http://a/v1=nan", "http://a/v1=x", "http://a/v1,http://a/v1/", "a"):
        with pytest.raises(InvalidInput):
            parsed_servers(wrong)


@pytest.mark.parametrize("weights", [(1.0,), (1.0, 0.0), (1.0, math.nan), (1.0, math.inf), (1.0, 2.0, 3.0)])
def test_weights_that_no_servers_can_have(weights: tuple[float, ...]) -> None:
    with pytest.raises(ValidationError):
        Endpoint(base_url="http://a/v1", more_urls=("http://b/v1",), weights=weights)


async def test_requests_wait_for_the_rate_of_their_key(tmp_path: Path) -> None:
    server = NarrowServer(100, 0.0)
    limits = {"": RateLimit(requests_per_minute=120)}
    async with serving(server) as base, process(tmp_path, "a", base, limits) as pacer:
        loop = asyncio.get_running_loop()
        async with rollouts([pacer], base, 20):
            began = loop.time()
            await eventually(lambda: _true(server.answered >= 15), "fifteen answers")
            assert server.answered <= 11 + 2 * (loop.time() - began)


def page(width: Width, in_use: int = 5) -> ServerPage:
    return ServerPage(width=width, in_use=in_use, waiting=0, speed=Speed(), down=False)


async def exchange(pages: PacePages, own: ServerPage, now: float) -> None:
    await pages.read(now)
    await pages.write(own)


async def test_an_exchange_of_pages_costs_the_store_little(tmp_path: Path) -> None:
    asked: Counter[str] = Counter()
    store = MeasuredStore(FilesystemStore(tmp_path), lambda request, _: asked.update([request]))
    server = Endpoint(base_url="http://a/v1")
    first, second = (PacePages(Journal(store), server, name) for name in ("a", "b"))
    for number in range(5):
        asked.clear()
        await exchange(first, page(Width(changes=number)), float(number))
        assert asked == Counter(create=1, list=1, delete=1) + Counter(read=int(number == 1))
        if number == 0:
            await exchange(second, page(Width(width=7, changes=99)), 0.0)
    assert first.width.width == 7
    assert set(first.alive(LEASE_SECONDS)) == {"b"}
    assert not first.alive(2 * LEASE_SECONDS)
    assert len(await store.keys("~pace/")) == 2, "the last of each"


async def test_pages_of_processes_that_are_gone_or_damaged_are_no_hindrance(tmp_path: Path) -> None:
    store = FilesystemStore(tmp_path)
    server = Endpoint(base_url="http://a/v1")
    own = PacePages(Journal(store), server, "own")
    await exchange(own, page(Width()), 0.0)
    (mine,) = await store.keys("~pace/")
    prefix = mine.rpartition("own/")[0]

    def key(name: str, age: float) -> str:
        return f"{prefix}{name}/{int((time.time() - age) * 1e6):018}"

    await Journal(store).write(key("killed", 600), page(Width(width=9, changes=9)))
    await Journal(store).write(key("outdated", 7200), page(Width(width=3, changes=99)))
    await store.create(key("damaged", 1), b"rubbish")
    await store.create(key("own", -1), b"of an earlier process with the same name")
    anew = PacePages(Journal(store), server, "own")
    await exchange(anew, page(Width()), 0.0)
    assert not anew.alive(0.0)
    assert anew.width.changes == 9
    names = {each.removeprefix(prefix).partition("/")[0] for each in await store.keys("~pace/")}
    assert names == {"own", "killed", "damaged"}
    await exchange(anew, page(Width()), 1.0)
    assert len([each for each in await store.keys("~pace/") if "/own/" in each]) == 1


async def test_a_process_that_is_started_anew_counts_its_refusals_from_nothing(tmp_path: Path) -> None:
    """Those of its page are of the present width, and replace those of the process that it follows."""
    server = Endpoint(base_url="http://a/v1")
    journal = Journal(FilesystemStore(tmp_path))
    leader, counted = PacePages(journal, server, "a"), []
    for refusals in ((5, 7), (1, 4)):
        writer = PacePages(journal, server, "b")
        for refused in refusals:
            told = page(Width()).model_copy(update={"speed": Speed(refused=refused)})
            await exchange(writer, told, 0.0)
            await exchange(leader, page(Width()), 0.0)
            counted.append(leader.alive(0.0)["b"].speed.refused)
    assert counted == [5, 7, 1, 4]
