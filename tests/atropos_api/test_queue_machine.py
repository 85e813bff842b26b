"""The API and its file under any order of requests, hang-ups, crashes and full disks, against a simple model."""

import asyncio
import itertools
import json
import shutil
import tempfile
from collections import Counter
from collections.abc import Awaitable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from starlette.types import Message

from clotho.listeners.access import Access
from clotho.listeners.bodies import BodyLimits
from clotho.plugins.atropos.api.queue import Queue
from clotho.plugins.atropos.api.server import AtroposApi
from tests.atropos_api.service import ENV, TRAINER, group

T = TypeVar("T")
Ids = tuple[str, ...]
SHAPES = st.lists(st.tuples(st.sampled_from([1, 2, 4]), st.sampled_from([None, 0, 1])), max_size=5)
"""Rows and environments of groups that are sent together."""


@dataclass
class Exchange:
    """One request and its answer. Its client may be gone before the answer comes, or be slow to read it."""

    client: tuple[str, int]
    gone: bool = False
    status: int = 0
    body: bytes = b""
    answered: asyncio.Event = field(default_factory=asyncio.Event)
    reads: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
        elif not message.get("more_body"):
            self.body += message["body"]
            self.answered.set()
            await self.reads.wait()


@dataclass
class Slow:
    """A batch that is on its way."""

    exchange: Exchange
    task: asyncio.Task[None]
    batch: Ids


class QueueMachine(RuleBasedStateMachine):
    """`waiting`: acknowledged, not served yet. `again`: to be served again, before anything else.

    `unseen`: some of those that wait are in a batch that was taken for a client which had gone before the answer.
    That batch, too, is served again.
    """

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.folder = Path(tempfile.mkdtemp(prefix="clotho-queue-"))
        self.ports, self.lives, self.numbers = (itertools.count(1) for _ in range(3))
        self.waiting: set[str] = set()
        self.again: list[Ids] = []
        self.unseen = False
        self.answered: list[Ids] = []
        self.slow: list[Slow] = []
        self.arrived: set[str] = set()
        self.live_in(self.folder / "0.sqlite")

    def live_in(self, path: Path) -> None:
        self.path = path
        self.queue = Queue(path)
        self.api = AtroposApi(self.queue, Access(), BodyLimits(10**7, 10**7, 10))

    @initialize()
    def register(self) -> None:
        self.ask("GET", "/reset_data")
        self.ask("POST", "/register", TRAINER)
        self.ask("GET", "/batch")
        for share in (None, 0.5):
            answer = self.ask("POST", "/register-env", {**ENV, "min_batch_allocation": share})
            assert answer.json["status"] == "success"

    @rule(shapes=SHAPES)
    def send(self, shapes: list[tuple[int, int | None]]) -> None:
        groups = self.groups(shapes)
        assert self.ask("POST", "/scored_data_list", groups).status == 200
        self.waiting |= ids(groups)

    @rule(data=st.data())
    def send_again(self, data: st.DataObject) -> None:
        if known := sorted(self.waiting | self.arrived):
            again = group(999_999, group_id=data.draw(st.sampled_from(known)))
            assert self.ask("POST", "/scored_data", again).json == {"status": "received", "duplicate": True}

    @rule()
    def fetch(self) -> None:
        self.answered = self.batches_of(self.ask("GET", "/batch"))

    @rule()
    def fetch_and_leave_before_the_answer(self) -> None:
        exchange = self.exchange(gone=True)
        self.run(self.asked(exchange, "GET", "/batch"))
        assert exchange.status == 503 or exchange.json["batch"] is None
        self.receive_answered()
        # what is to be served again is taken first, a batch that nobody has seen included
        self.unseen = self.unseen or (exchange.status == 503 and not self.again)

    @rule()
    def fetch_and_leave_in_mid_answer(self) -> None:
        exchange = self.ask("GET", "/batch")
        torn = self.batches_of(exchange)
        self.leave(exchange)
        self.again += torn

    @rule()
    def fetch_slowly(self) -> None:
        exchange = self.exchange()
        exchange.reads.clear()
        task = self.loop.create_task(self.asked(exchange, "GET", "/batch"))
        self.run(exchange.answered.wait())
        if batches := self.batches_of(exchange):
            self.slow.append(Slow(exchange, task, *batches))
        else:
            self.finish(exchange, task)

    @precondition(lambda self: self.slow)
    @rule()
    def read_to_the_end(self) -> None:
        slow = self.slow.pop(0)
        self.finish(slow.exchange, slow.task)
        self.answered.append(slow.batch)

    @precondition(lambda self: self.slow)
    @rule()
    def leave_while_reading(self) -> None:
        slow = self.slow.pop(0)
        self.leave(slow.exchange)
        self.finish(slow.exchange, slow.task)
        self.again.append(slow.batch)

    @rule()
    def crash(self) -> None:
        self.restart_from(self.copied_files())

    @rule(statement=st.integers(1, 12), shapes=SHAPES)
    def crash_while_a_sent_group_is_written(
        self, statement: int, shapes: list[tuple[int, int | None]]
    ) -> None:
        groups = self.groups(shapes)
        copy, _ = self.copy_in_mid_write(statement, "POST", "/scored_data_list", groups)
        if copy is None:
            self.waiting |= ids(groups)
        self.restart_from(copy or self.copied_files())

    @rule(statement=st.integers(1, 12))
    def crash_while_a_batch_is_served(self, statement: int) -> None:
        waiting, again, answered = set(self.waiting), list(self.again), list(self.answered)
        unseen = self.unseen
        copy, exchange = self.copy_in_mid_write(statement, "GET", "/batch")
        self.answered = self.batches_of(exchange)
        if copy is not None:
            self.arrived -= {name for batch in answered for name in batch}
            self.waiting, self.again, self.answered, self.unseen = waiting, again, answered, unseen
        self.restart_from(copy or self.copied_files())

    @rule(sends=st.booleans())
    def fill_the_disk(self, sends: bool) -> None:
        """Where there is no room for another page, a request that needs one changes nothing."""
        connection = self.queue._file
        (pages,) = connection.execute("PRAGMA page_count").fetchone()
        connection.execute(f"PRAGMA max_page_count = {pages}")
        if sends:
            large = group(next(self.numbers), images=[str(number) for number in range(20_000)])
            assert self.ask("POST", "/scored_data", large).status == 503
        else:
            exchange = self.ask("GET", "/batch")
            if exchange.status == 200:
                self.answered = self.batches_of(exchange)
        connection.execute("PRAGMA max_page_count = 1000000")

    @invariant()
    def the_file_holds_what_was_acknowledged_and_has_not_arrived(self) -> None:
        held = Counter(self.queue.held())
        outstanding = [*self.again, *self.answered, *(slow.batch for slow in self.slow)]
        assert held == Counter([*self.waiting, *(name for batch in outstanding for name in batch)])

    def teardown(self) -> None:
        for slow in self.slow:
            self.finish(slow.exchange, slow.task)
        self.queue.close()
        self.loop.close()
        shutil.rmtree(self.folder)

    def batches_of(self, exchange: Exchange) -> list[Ids]:
        """The batch that was served, none or one, which must be the right one."""
        self.receive_answered()
        batch = exchange.json["batch"]
        if batch is None:
            assert not self.again
            assert not self.unseen
            return []
        names = tuple(each["group_id"] for each in batch)
        if names in self.again:
            self.again.remove(names)
        else:
            assert self.unseen or not self.again
            assert self.waiting.issuperset(names)
            self.waiting -= set(names)
            self.unseen = False
        return [names]

    def receive_answered(self) -> None:
        self.arrived |= {name for batch in self.answered for name in batch}
        self.answered = []

    def restart_from(self, path: Path) -> None:
        """A process that is killed leaves nothing but its files."""
        self.again += [*self.answered, *(slow.batch for slow in self.slow)]
        for slow in self.slow:
            slow.task.cancel()
            self.run(asyncio.wait([slow.task]))
        self.answered, self.slow = [], []
        self.queue.close()
        self.live_in(path)

    def copied_files(self) -> Path:
        path = self.folder / f"{next(self.lives)}.sqlite"
        for end in ("", "-wal"):
            if (written := Path(f"{self.path}{end}")).exists():
                shutil.copy(written, f"{path}{end}")
        return path

    def copy_in_mid_write(
        self, statement: int, method: str, path: str, body: object = None
    ) -> tuple[Path | None, Exchange]:
        """The files as they are before the write's `statement`; None if there are fewer."""
        copies: list[Path] = []
        seen = itertools.count(1)

        def copy(text: str) -> None:
            if not text.startswith("SELECT") and next(seen) == statement:
                copies.append(self.copied_files())

        self.queue._file.set_trace_callback(copy)
        exchange = self.ask(method, path, body)
        self.queue._file.set_trace_callback(None)
        return (copies[0] if copies else None), exchange

    def groups(self, shapes: list[tuple[int, int | None]]) -> list[dict[str, object]]:
        return [group(next(self.numbers), rows, env_id=env) for rows, env in shapes]

    def leave(self, exchange: Exchange) -> None:
        self.api.client_left(exchange.client)

    def finish(self, exchange: Exchange, task: asyncio.Task[None]) -> None:
        exchange.reads.set()
        self.run(task)

    def exchange(self, *, gone: bool = False) -> Exchange:
        exchange = Exchange(("127.0.0.1", next(self.ports)), gone)
        exchange.reads.set()
        return exchange

    def ask(self, method: str, path: str, body: object = None) -> Exchange:
        exchange = self.exchange()
        self.run(self.asked(exchange, method, path, body))
        return exchange

    async def asked(self, exchange: Exchange, method: str, path: str, body: object = None) -> None:
        content = b"" if body is None else json.dumps(body).encode()
        unread: list[Message] = [{"type": "http.request", "body": content, "more_body": False}]

        async def receive() -> Message:
            if not unread and not exchange.gone:
                await asyncio.Event().wait()
            return unread.pop() if unread else {"type": "http.disconnect"}

        headers = [(b"host", b"127.0.0.1"), (b"content-type", b"application/json")]
        scope = {"type": "http", "method": method, "path": path, "headers": headers, "query_string": b""}
        await self.api({**scope, "client": exchange.client}, receive, exchange.send)

    def run(self, work: Awaitable[T]) -> T:
        return self.loop.run_until_complete(work)


def ids(groups: list[dict[str, object]]) -> set[str]:
    return {str(each["group_id"]) for each in groups}


TestQueue = QueueMachine.TestCase
TestQueue.settings = settings(
    max_examples=40, stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck)
)
