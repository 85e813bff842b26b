"""The gateway: answers what a harness asks of its model's API, each call a turn of the rollout.

It follows the log of the sandbox's port. What a call is named and which turn answers it follows from the log alone,
in its order, so that a process which takes over comes to the same; what has no effect twice is then done again:
asking the workflow for a turn that it has. A harness never sees an outage: its call is held open until there is an
answer, whatever that takes. It is told of an error where the real API would send one, and where a limit ends it.
"""

import asyncio
import hashlib
import json
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, ParamSpec, TypeVar

from clotho.models.messages import ChatMessage
from clotho.plugins.harness.calls import Calls, Slot, without_messages
from clotho.plugins.harness.dialects import BY_PATH
from clotho.plugins.harness.dialects.canonical import Answer, Asked, InvalidRequest
from clotho.plugins.harness.dialects.dialect import Dialect, ErrorKind
from clotho.plugins.harness.digest import Normalization
from clotho.plugins.harness.exchange import Exchange, HttpRequest, Unserved
from clotho.plugins.harness.port import Connection, Port
from clotho.rollouts.agent_program import MOST_ASKED_AT_ONCE, AnsweredTurn, Stage
from clotho.rollouts.asked import AskedEntry, AskedTools
from clotho.rollouts.lease import Fidelity
from clotho.rollouts.turn import TurnEntry
from clotho.sandbox.backend import JobStatus

PING_SECONDS = 10.0
SHORT = 1 << 14
"""Bytes that are worked on at once: in any form they take no tenth of a second."""
CHARACTERS_A_TOKEN = 4
"""For counts that clients ask for before they send a request."""


P = ParamSpec("P")
T = TypeVar("T")


async def beside(size: int, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """The result of `work` on so many bytes, in a thread unless they are few."""
    if size <= SHORT:
        return work(*args, **kwargs)
    return await asyncio.to_thread(work, *args, **kwargs)


@dataclass
class Served:
    """A call that came over a connection: what it asked, and the turn that answers it."""

    exchange: Exchange
    dialect: Dialect
    asked: Asked
    slot: Slot
    call: str


@dataclass
class Counts:
    """What the calls of one start were."""

    calls: int = 0
    matched: int = 0
    repeated: int = 0
    refused: int = 0
    diverged_at: int | None = None


@dataclass
class Clock:
    """The time in which a harness worked, and not the model for it."""

    begun: float = field(default_factory=time.monotonic)
    waited: float = 0.0
    _waits: int = 0
    _since: float = 0.0

    def begin_wait(self) -> None:
        self._waits += 1
        if self._waits == 1:
            self._since = time.monotonic()

    def end_wait(self) -> None:
        self._waits -= 1
        if self._waits == 0:
            self.waited += time.monotonic() - self._since

    @property
    def worked(self) -> float:
        waiting = time.monotonic() - self._since if self._waits else 0.0
        return time.monotonic() - self.begun - self.waited - waiting


class Gateway:
    """The gateway of one start; `key` is the API key that its harness has."""

    def __init__(
        self,
        stage: Stage,
        port_number: int,
        key: str,
        normalization: Normalization,
        aside_without_tools: bool,
    ) -> None:
        self._stage = stage
        self._key = key
        self._normalization = normalization
        self._aside_without_tools = aside_without_tools
        scope = (stage.rollout, "harness", stage.lease)
        self._port = Port(stage.sandbox, scope, port_number, stage.server, self._changed, self._begin_serving)
        self._exchanges: dict[int, Exchange] = {}
        self._served: dict[int, Served] = {}
        self._unasked: dict[int, tuple[Exchange, Dialect, HttpRequest]] = {}
        """Calls that an earlier server hasn't asked for: it was killed before that, or had refused them."""
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._flights: dict[int, asyncio.Task[AnsweredTurn]] = {}
        self._asking = asyncio.Semaphore(MOST_ASKED_AT_ONCE)
        self._calls = Calls({}, {})
        self._known_digests: dict[bytes, str] = {}
        self._over = False
        """The harness has ended: what it left behind gets no further turns."""
        self.counts = Counts()
        self.clock = Clock()
        self.sampled_seconds = 0.0
        self.limit: str | None = None
        """The limit that ends the harness."""
        self.overflowed = False
        self.failure: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Raises what a call failed with: the attempt ends then, and another goes on."""

    @property
    def replayed(self) -> Fidelity | None:
        """Whether this start took the way of an earlier one, so far; None where there was none."""
        start = self._stage.lease
        if not self._calls.has_earlier(start):
            return None
        other = self.counts.diverged_at is not None or self._calls.unmatched(start)
        return Fidelity.DIVERGED if other else Fidelity.REPLAYED

    async def begin(self) -> None:
        """Read what is known of the rollout's calls, have the workflow count them, and open the port."""
        asked = await self._stage.asked()
        turns = await self._stage.turns(sorted(asked))
        await asyncio.to_thread(self._recall, asked, turns)
        for turn in sorted(turns.keys() - set(self._stage.counted)):
            await self._stage.answer(turn)
        await self._port.begin()

    def _recall(self, asked: dict[int, AskedEntry], turns: dict[int, TurnEntry]) -> None:
        self._calls = Calls(asked, {})
        for turn in sorted(asked):
            self._calls.digests[turn] = self._digests_of(turn)
            if turn in turns:
                self._calls.add_answer(turn, turns[turn], self._digest_of_answer(turns[turn]))
        self._calls.asked = {turn: without_messages(entry) for turn, entry in asked.items()}

    def _digests_of(self, turn: int) -> list[str]:
        entry = self._calls.asked[turn]
        before: list[str] = []
        if entry.extends is not None:
            sampled = self._calls.turns[entry.extends].sampled
            answer = [self._digest(sampled.message)] if sampled is not None else []
            before = [*self._calls.digests[entry.extends], *answer][: entry.kept]
        return [*before, *map(self._digest, entry.messages)]

    def _digest_of_answer(self, entry: TurnEntry) -> str | None:
        return self._digest(entry.sampled.message) if entry.sampled is not None else None

    def _digest(self, message: ChatMessage) -> str:
        """The digest of the normalized message: each call repeats those before, and their patterns are slow."""
        as_sent = hashlib.sha256(message.model_dump_json().encode()).digest()
        if (known := self._known_digests.get(as_sent)) is None:
            known = self._known_digests[as_sent] = self._normalization.digest(message)
        return known

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
            begun = (following, *self._tasks.values(), *self._flights.values())
            for task in begun:
                task.cancel()
            await asyncio.gather(*begun, return_exceptions=True)

    async def _begin_serving(self) -> None:
        """Answer what still waits for its answer, once earlier servers have no effect any more."""
        for exchange, dialect, request in list(self._unasked.values()):
            await self._called(exchange, dialect, request)
        self._unasked.clear()
        for number, served in list(self._served.items()):
            self._begin_answer(number, served)

    async def ready(self) -> None:
        """Wait until calls are answered: a harness may take a port that nobody listens at for its end."""
        await self._port.serving.wait()

    async def finish(self) -> None:
        """Take no further calls, and wait for the turns that are being sampled: they are paid for."""
        self._over = True
        caught_up = asyncio.create_task(self._port.serving.wait())
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
                served.slot.waits = False
            for kept in (self._exchanges, self._served):
                kept.pop(number, None)
            if (task := self._tasks.pop(number, None)) is not None:
                task.cancel()
        elif connection.delivered and served is not None:
            served.slot.waits, served.slot.delivered = False, True
            if served.slot.turn not in self._calls.turns:
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
            self.counts.refused += 1
            body = dialect.error(error.status, "invalid_request", error.message)
            self._reply(exchange, error.status, body)
            return
        number = exchange.connection.number
        served = await self._named(exchange, dialect, asked, len(request.body))
        if served is not None:
            self._served[number] = served
            if self._port.serving.is_set() and number not in self._unasked:
                self._begin_answer(number, served)
        elif self._port.serving.is_set():
            status = dialect.statuses["limit_reached"]
            words = "the agent has ended" if self._over else limit_words(self.limit)
            self._reply(exchange, status, dialect.error(status, "limit_reached", words))
        else:
            self._unasked[number] = exchange, dialect, request

    async def _named(self, exchange: Exchange, dialect: Dialect, asked: Asked, size: int) -> Served | None:
        """Give a call its name and its turn: those of an equal one that it repeats, or of an earlier start's.

        None for a new call that isn't asked for: the harness has ended, or is at a limit, or an earlier server may
        have refused it.
        """
        digests, of_tools = await beside(size, self._digests, asked)
        tools = AskedTools(schemas=asked.tools, freeform=tuple(sorted(asked.custom_tools)))
        digest = hashlib.sha256("\n".join([*digests, of_tools]).encode()).hexdigest()[:24]
        if (again := self._calls.slot_again(digest)) is not None:
            ordinal, slot = again
            slot.waits, slot.delivered = True, False
            self.counts.repeated += 1
            return Served(exchange, dialect, asked, slot, f"{digest}-{ordinal}")
        ordinal = len(self._calls.slots[digest])
        call = f"{digest}-{ordinal}"
        beginning = self._calls.longest_beginning(digests)
        turn = self._calls.turn_of(call)
        if turn is None and (self._over or self.limit is not None or not self._port.serving.is_set()):
            return None
        if turn is None:
            turn = await self._asked_anew(call, asked, tools, of_tools, digests, beginning)
        elif self._calls.asked[turn].start < self._stage.lease:
            self.counts.matched += 1
        if beginning is not None:
            self._calls.note_extended(beginning[0])
        self.counts.calls += 1
        slot = Slot(turn)
        self._calls.slots[digest].append(slot)
        return Served(exchange, dialect, asked, slot, call)

    def _digests(self, asked: Asked) -> tuple[list[str], str]:
        """Those of its messages, and that of its tools."""
        of_tools = self._normalization.digest_of_tools(asked.tools, asked.custom_tools)
        return [self._digest(message) for message in asked.messages], of_tools

    async def _asked_anew(
        self,
        call: str,
        asked: Asked,
        tools: AskedTools,
        of_tools: str,
        digests: list[str],
        beginning: tuple[int, int] | None,
    ) -> int:
        extends, kept = beginning if beginning is not None else (None, 0)
        entry = AskedEntry(
            call=call,
            start=self._stage.lease,
            extends=extends,
            kept=kept,
            messages=asked.messages[kept:],
            tools=of_tools,
            aside=self._aside_without_tools and not asked.tools,
            requested=asked.requested,
        )
        turn = await self._stage.ask(self._calls.next_turn, entry, tools)
        self._calls.add(turn, entry, digests)
        if self.counts.diverged_at is None and self._calls.unmatched(self._stage.lease):
            self.counts.diverged_at = self.counts.calls
        return turn

    # ---- answers ----

    def _begin_answer(self, number: int, served: Served) -> None:
        self._begin(served.exchange, lambda: self._answer(served))

    async def _answer(self, served: Served) -> None:
        exchange, dialect, model = served.exchange, served.dialect, served.asked.model
        flight = self._flight(served.slot.turn)
        id = served.call.replace("-", "")
        self.clock.begin_wait()
        try:
            while not (await asyncio.wait([flight], timeout=PING_SECONDS))[0]:
                if served.asked.stream:
                    await self._keep_waiting(exchange, dialect, id, model)
            answered = flight.result()
        finally:
            self.clock.end_wait()
        if answered.entry is None or answered.entry.sampled is None:
            await self._end_with_error(served, answered, id)
            return
        self.overflowed = False
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
            kind, words = "context_overflow", answered.entry.context_overflow or "the prompt is too long"
            self.overflowed = True
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
        if (entry := answered.entry) is not None and turn not in self._calls.turns:
            sampled = entry.sampled
            self.sampled_seconds += sampled.seconds if sampled is not None else 0.0
            self._calls.add_answer(turn, entry, self._digest_of_answer(entry))
        return answered


def limit_words(limit: str | None) -> str:
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
