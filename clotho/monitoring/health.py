"""`/healthz` and `/readyz` of a worker process, on the event loop that its workers run on."""

import asyncio
import logging
import socket
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta

from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send
from temporalio.client import Client
from temporalio.service import RPCError

from clotho.errors import ClothoError, InvalidInput
from clotho.journal.store import Store
from clotho.listeners.access import Access
from clotho.listeners.bodies import Bodies, BodyLimits
from clotho.listeners.guarded import guarded
from clotho.listeners.listening import Server, listen, url_of
from clotho.listeners.refused import Refused
from clotho.monitoring.endpoint import PORTS
from clotho.worker_settings import HealthSettings

ANSWER_SECONDS = 3.0
"""What answers later counts as silent."""
FRESH_SECONDS = 5.0
"""Age up to which an answer is given again, so that a crowd of probes asks Temporal and the store no more often."""
PROBED_KEY = "~health/probe"
"""No entry: reading it shows that the store answers, at the price of one GET in S3."""
MOST_CONNECTIONS = 1_000
SECONDS_TO_FINISH = 1
LIMITS = BodyLimits(sent_bytes=4_096, unpacked_bytes=4_096, seconds=5.0)

log = logging.getLogger("clotho")
Ask = Callable[[], Awaitable[object]]


class Part:
    """A service without which a worker can do nothing; `ask` runs once at a time."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self._asked = 0.0
        self._answer: asyncio.Task[bool] | None = None

    async def answers(self) -> bool:
        """Whether it answers within ANSWER_SECONDS."""
        now = time.monotonic()
        if self._answer is None or (self._answer.done() and now - self._asked > FRESH_SECONDS):
            self._asked, self._answer = now, asyncio.create_task(self._answered())
        # A question that hangs goes on: a store's threads would be used up by one for each probe.
        done, _ = await asyncio.wait({self._answer}, timeout=ANSWER_SECONDS)
        return bool(done) and self._answer.result()

    async def _answered(self) -> bool:
        try:
            await self._ask()
        except (RPCError, ClothoError):
            return False
        return True


class Readiness:
    """Whether this process can do the work that it asks for."""

    def __init__(self, parts: dict[str, Ask]) -> None:
        self._parts = {name: Part(ask) for name, ask in parts.items()}
        self.draining = False

    async def lacking(self) -> list[str]:
        """The parts that don't answer."""
        answers = await asyncio.gather(*(part.answers() for part in self._parts.values()))
        return [name for name, answered in zip(self._parts, answers, strict=True) if not answered]


def worker_readiness(client: Client, store: Store) -> Readiness:
    async def ask_temporal() -> None:
        await client.service_client.check_health(timeout=timedelta(seconds=ANSWER_SECONDS))

    async def ask_store() -> None:
        await store.read_many([PROBED_KEY])

    return Readiness({"temporal": ask_temporal, "store": ask_store})


def health_app(readiness: Readiness) -> ASGIApp:
    """The ASGI application, which needs no token: it says no more than the names of parts."""

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        await (await _answer(scope, readiness))(scope, receive, send)

    # probes ask by address, which Access lets in; pages that rebind a name don't get through
    return guarded(answer, Access(), Bodies(LIMITS), _refusal)


async def _answer(scope: Scope, readiness: Readiness) -> Response:
    if scope["path"] not in ("/healthz", "/readyz"):
        return JSONResponse({"error": "there are /healthz and /readyz"}, 404)
    if scope["method"] not in ("GET", "HEAD"):
        return JSONResponse({"error": "GET it"}, 405, {"allow": "GET, HEAD"})
    if scope["path"] == "/healthz":
        return JSONResponse({"alive": True})
    lacking = await readiness.lacking()
    ready = not (lacking or readiness.draining)
    said = {"ready": ready, "draining": readiness.draining, "lacking": lacking}
    return JSONResponse(said, 200 if ready else 503)


def _refusal(refused: Refused) -> Response:
    return JSONResponse({"error": str(refused.detail)}, refused.status, refused.headers)


class HealthServer(Server):
    """Serves until it is cancelled; signals are the worker's."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


async def serve_health(settings: HealthSettings, readiness: Readiness) -> None:
    """Serve at the first free port; says where, or why nowhere."""
    if not settings.port:
        return
    try:
        bound = _first_free(settings)
    except InvalidInput as error:
        log.warning("no health checks: ports from %d on: %s", settings.port, error)
        return
    server = HealthServer(
        health_app(readiness),
        lambda: log.info("health at %s/healthz and /readyz", url_of(bound)),
        most_connections=MOST_CONNECTIONS,
        seconds_to_finish=SECONDS_TO_FINISH,
    )
    try:
        await server.serve(sockets=[bound])
    finally:
        for listener in server.servers:  # the loop would go on to watch the descriptor, whoever has it next
            listener.close()
        bound.close()


def _first_free(settings: HealthSettings) -> socket.socket:
    # the last port outside the loop: its error is the one that is told
    last = min(settings.port + PORTS, 2**16) - 1
    for port in range(settings.port, last):
        try:
            return listen(settings.host, port)
        except InvalidInput:
            continue
    return listen(settings.host, last)
