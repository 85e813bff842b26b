"""The gateway: it answers a harness' calls of its model's API, each with a turn of the rollout.

It follows the log of the sandbox's port. The log alone, in its order, decides how a call is named and which turn
answers it, so that a process which takes over decides the same. That process repeats only what has no effect twice:
it asks the workflow for turns that the workflow has. A harness never sees an outage: the gateway holds a call open
until there is an answer, whatever that takes. It answers with an error where the real API would, and at a limit.
"""

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from clotho.plugins.harness.calls import Slot
from clotho.plugins.harness.clock import Clock
from clotho.plugins.harness.dialects import BY_PATH
from clotho.plugins.harness.dialects.canonical import Answer, Asked, InvalidRequest
from clotho.plugins.harness.dialects.dialect import Dialect, ErrorKind
from clotho.plugins.harness.exchange import Exchange, HttpRequest, Unserved
from clotho.plugins.harness.naming import Naming
from clotho.plugins.harness.port import Connection, Port
from clotho.plugins.harness.threads import beside
from clotho.rollouts.agent_program import MOST_ASKED_AT_ONCE, AnsweredTurn, Stage
from clotho.rollouts.turn import TurnEntry
from clotho.sandbox.backend import JobStatus

# clients cut streams that are silent for 300 s
PING_SECONDS = 10.0
"""Bytes that are worked on at once: in any form they take no tenth of a second."""
CHARACTERS_A_TOKEN = 4
"""For counts that clients ask for before they send a request."""


@dataclass
class Served:
    """A call that came over a connection: what it asked, and the turn that answers it."""

    exchange: Exchange
    dialect: Dialect
    asked: Asked
    slot: Slot
    call: str


class Gateway:
    """The gateway of one start; `key` is the API key that its harness has."""

    def __init__(self, stage: Stage, port_number: int, key: str, naming: Naming) -> None:
        self._stage = stage
        self._key = key
        self._naming = naming
        scope = (stage.rollout, "harness", stage.lease)
        self._port = Port(stage.sandbox, scope, port_number, stage.server, self._changed, self._begin_serving)
        self._exchanges: dict[int, Exchange] = {}
        self._served: dict[int, Served] = {}
        self._unasked: dict[int, tuple[Exchange, Dialect, HttpRequest]] = {}
        """Calls that an earlier server hasn't asked for: it was killed before that, or had refused them."""
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._flights: dict[int, asyncio.Task[AnsweredTurn]] = {}
        self._asking = asyncio.Semaphore(MOST_ASKED_AT_ONCE)
        self._took_over = asyncio.Event()
        """The clock goes on, and what earlier servers left without an answer is being answered."""
        self._over = False
        """The harness has ended: what it left behind gets no further turns."""
        self.clock = Clock()
        self.sampled_seconds = 0.0
        self.limit: str | None = None
        """The limit that ends the harness."""
        self.overflows = 0
        """Calls in a row that didn't fit into the model's context: at the second, the harness is ended."""
        self.failure: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Raises what a call failed with: the attempt ends then, and another goes on."""

    @property
    def end_words(self) -> str | None:
        """The gateway tells a harness these words to end it; None where it may go on."""
        if self._over:
            return "the agent has ended"
        if self.limit is not None:
            return limit_words(self.limit)
        return "the prompt is too long for the model" if self.overflows > 1 else None

    async def begin(self) -> None:
        """Read what is known of the rollout's calls, have the workflow count them, and open the port."""
        asked = await self._stage.asked()
        turns = await self._stage.turns(sorted(asked))
        await asyncio.to_thread(self._naming.recall, asked, turns)
        # these have answers: the workflow is asked for them only to count them
        for turn in sorted(turns.keys() - set(self._stage.counted)):
            await self._stage.answer(turn)
            if (sampled := turns[turn].sampled) is not None:
                self.sampled_seconds += sampled.seconds  # since what is left was reckoned
        await self._port.begin()

    async def serve(self) -> JobStatus:
        """Serve until the port has ended; returns how. What is begun ends with this call."""
        following = self._following = asyncio.create_task(self._port.serve())
        try:
            either: set[asyncio.Future[Any]] = {following, self.failure}
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if self.failure.done():
                self.failure.result()
            return await following
        finally:
            # the workflow goes on sampling: the next process asks for the same turns
            begun = (following, *self._tasks.values(), *self._flights.values())
            for task in begun:
                task.cancel()
            await asyncio.gather(*begun, return_exceptions=True)

    async def _begin_serving(self) -> None:
        """Answer what still waits for its answer, once earlier servers have no effect any more."""
        waits = bool(self._unasked) or any(served.slot.waits for served in self._served.values())
        worked = self._naming.worked_before(waits, time.time())
        self.clock.go_on_from(await self._port.seconds_open() if worked is None else worked)
        for exchange, dialect, request in list(self._unasked.values()):
            await self._called(exchange, dialect, request)
        self._unasked.clear()
        for number, served in list(self._served.items()):
            self._begin_answer(number, served)
        self._took_over.set()

    async def ready(self) -> None:
        """Wait until calls are answered: a harness may take a port that nobody listens at for its end."""
        await self._took_over.wait()

    async def finish(self) -> None:
        """Take no further calls, and wait for the turns that are being sampled: they are paid for."""
        self._over = True
        # until the log is read, calls may be unknown whose turns are being sampled
        caught_up = asyncio.create_task(self._took_over.wait())
        either: set[asyncio.Future[Any]] = {caught_up, self._following, self.failure}
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        caught_up.cancel()
        await asyncio.gather(*self._flights.values())
        await self._port.end()

    # ---- connections ----

    async def _changed(self, connection: Connection) -> None:
        number = connection.number
        served = self._served.get(number)
        if connection.delivered or connection.ended.is_set():
            self._unasked.pop(number, None)
        if connection.ended.is_set():
            if served is not None and served.slot.waits:
                # cut off: an equal request takes this slot again
                served.slot.waits = False
            for kept in (self._exchanges, self._served):
                kept.pop(number, None)
            if (task := self._tasks.pop(number, None)) is not None:
                task.cancel()
        elif connection.delivered and served is not None:
            served.slot.waits, served.slot.delivered = False, True
            if not self._naming.has_answer(served.slot.turn):
                self._flight(served.slot.turn)  # an earlier server has told of a limit: which one?
        elif connection.received:
            await self._received(connection)

    async def _received(self, connection: Connection) -> None:
        exchange = self._exchanges.get(connection.number)
        if exchange is None:
            exchange = self._exchanges[connection.number] = Exchange(self._port, connection)
        try:
            request = await beside(len(connection.received), exchange.read)
        except Unserved as error:
            self._reply(exchange, 400, json.dumps({"error": {"message": str(error)}}).encode())
            return
        if request is not None:
            await self._requested(exchange, request)
        elif exchange.waits_for_leave:
            self._begin(exchange, exchange.give_leave)

    def _reply(self, exchange: Exchange, status: int, body: bytes) -> None:
        self._begin(exchange, lambda: exchange.answer(status, body))

    def _begin(self, exchange: Exchange, send: Callable[[], Awaitable[None]]) -> None:
        """Send something over a connection, after what it is sent already, once this process is who answers."""
        connection = exchange.connection
        before = self._tasks.get(connection.number)

        async def run() -> None:
            await self._port.serving.wait()
            if before is not None:
                await before
            if not connection.delivered and not connection.ended.is_set():
                await send()

        task = asyncio.create_task(run())
        self._tasks[connection.number] = task
        task.add_done_callback(self._note_failure)

    def _note_failure(self, task: "asyncio.Task[None]") -> None:
        if not task.cancelled() and (error := task.exception()) is not None and not self.failure.done():
            self.failure.set_exception(error)

    # ---- requests ----

    async def _requested(self, exchange: Exchange, request: HttpRequest) -> None:
        path = request.path.removeprefix("/v1/")
        dialect = BY_PATH.get(path)
        if request.method == "POST" and dialect is not None:
            await self._called(exchange, dialect, request)
        elif request.method == "POST" and path == "messages/count_tokens":
            self._reply(
                exchange, 200, json.dumps({"input_tokens": len(request.body) // CHARACTERS_A_TOKEN}).encode()
            )
        elif request.method == "GET" and path == "models":
            model = {"id": self._stage.manifest.model, "object": "model", "created": 0, "owned_by": "clotho"}
            self._reply(exchange, 200, json.dumps({"object": "list", "data": [model]}).encode())
        else:
            self._reply(exchange, 404, json.dumps({"error": {"message": "not served here"}}).encode())

    async def _called(self, exchange: Exchange, dialect: Dialect, request: HttpRequest) -> None:
        if dialect.key(request.headers) != self._key:
            body = dialect.error(401, "unauthorized", "this key isn't of the agent that runs now")
            self._reply(exchange, 401, body)
            return
        try:
            asked = await beside(len(request.body), dialect.parse, request.body)
        except InvalidRequest as error:
            body = dialect.error(error.status, "invalid_request", error.message)
            self._reply(exchange, error.status, body)
            return
        number = exchange.connection.number
        # an earlier server may have refused a call that the journal lacks: it is looked at once that is known
        may_be_new = self._port.serving.is_set() and self.end_words is None
        named = await self._naming.name(asked, len(request.body), self.clock.worked, may_be_new)
        if named is not None:
            served = self._served[number] = Served(exchange, dialect, asked, named.slot, named.call)
            # those of `_unasked` are begun by _begin_serving, with all others that wait
            if self._port.serving.is_set() and number not in self._unasked:
                self._begin_answer(number, served)
        elif self._port.serving.is_set():
            status = dialect.statuses["limit_reached"]
            self._reply(exchange, status, dialect.error(status, "limit_reached", self.end_words or ""))
        else:
            self._unasked[number] = exchange, dialect, request

    # ---- answers ----

    def _begin_answer(self, number: int, served: Served) -> None:
        self._begin(served.exchange, lambda: self._answer(served))

    async def _answer(self, served: Served) -> None:
        exchange, dialect, model = served.exchange, served.dialect, served.asked.model
        flight = self._flight(served.slot.turn)
        # by the call's name: the harness may send it back, and a later start must send the same
        id = served.call.replace("-", "")
        self.clock.begin_wait()
        try:
            # not wait_for: neither this timeout nor a cut connection may cancel the sampling
            while not (await asyncio.wait([flight], timeout=PING_SECONDS))[0]:
                if served.asked.stream:
                    await self._keep_waiting(exchange, dialect, id, model)
            answered = flight.result()
        finally:
            self.clock.end_wait()
        if answered.entry is None or answered.entry.sampled is None:
            await self._end_with_error(served, answered, id)
            return
        self.overflows = 0
        answer = _answer_of(answered.entry, served.asked)
        if not served.asked.stream:
            await exchange.answer(200, dialect.answer(answer, id, model))
            return
        events = await asyncio.to_thread(
            lambda: b"".join(dialect.events(answer, id, model, opened=exchange.begun))
        )
        if not exchange.begun:
            await exchange.begin_stream(b"")
        await exchange.end_stream(events)

    async def _keep_waiting(self, exchange: Exchange, dialect: Dialect, id: str, model: str) -> None:
        if not exchange.begun:
            await exchange.begin_stream(dialect.opening(id, model))
        await exchange.stream(dialect.ping)

    async def _end_with_error(self, served: Served, answered: AnsweredTurn, id: str) -> None:
        exchange, dialect = served.exchange, served.dialect
        kind: ErrorKind
        if answered.limit is not None:
            kind, words = "limit_reached", limit_words(answered.limit)
        else:
            assert answered.entry is not None
            self.overflows += 1
            # told of it again, some shorten their history for ever
            kind = "context_overflow" if self.overflows == 1 else "limit_reached"
            words = answered.entry.context_overflow or "the prompt is too long"
        if exchange.begun:
            await exchange.end_stream(dialect.error_event(kind, words, id, served.asked.model))
        else:
            status = dialect.statuses[kind]
            await exchange.answer(status, dialect.error(status, kind, words))

    def _flight(self, turn: int) -> "asyncio.Task[AnsweredTurn]":
        """The sampling of a turn: it goes on whatever becomes of the connection."""
        if (flight := self._flights.get(turn)) is None:
            flight = self._flights[turn] = asyncio.create_task(self._sampled(turn))
        return flight

    async def _sampled(self, turn: int) -> AnsweredTurn:
        async with self._asking:
            answered = await self._stage.answer(turn)
        self.limit = answered.limit or self.limit
        if (entry := answered.entry) is not None and not self._naming.has_answer(turn):
            self.sampled_seconds += entry.sampled.seconds if entry.sampled is not None else 0.0
            self._naming.add_answer(turn, entry)
        return answered


def limit_words(limit: str) -> str:
    return f"the rollout's limit {limit} is reached"


def _answer_of(entry: TurnEntry, asked: Asked) -> Answer:
    sampled = entry.sampled
    assert sampled is not None
    return Answer(
        message=sampled.message,
        finish_reason=sampled.finish_reason,
        prompt_tokens=sampled.usage.prompt_tokens,
        completion_tokens=sampled.usage.completion_tokens,
        custom_tools=asked.custom_tools,
        namespaces=asked.namespaces,
    )
