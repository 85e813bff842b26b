"""Processes for an author's code, as their worker starts, asks, bounds and ends them."""

import asyncio
import itertools
import logging
import os
import signal
import socket
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import JsonValue

from clotho import application
from clotho.config import environment_for_authors
from clotho.environment.channel import Channel, Closed, Message, error_fields, error_of
from clotho.environment.code import Code
from clotho.environment.handles import AuthorProcessEnded, WorkClock, current_clock, infrastructure_wait
from clotho.environment.threads import TimedOut
from clotho.environment.tool_context import ContextCalls
from clotho.errors import ClothoError, EnvironmentFailed, HostUnavailable
from clotho.host_failures import described

# a process exceeds its memory bound by what it takes in one pause
WATCH_SECONDS = 0.1
"""Pause between looks at the memory and the time of a process that works."""
# for leaks that neither descriptors nor memory show, such as threads
MOST_USES = 500
"""Calls after which a process is replaced."""
DESCRIPTORS_KEPT = 64
"""Descriptors that calls may leave open before the process is replaced."""
GROWTH_KEPT = 512 << 20
"""Bytes by which calls may leave the process grown before it is replaced."""
PAGE = os.sysconf("SC_PAGE_SIZE")
# the kernel sends SIGKILL where memory is short, and a host that shuts down sends SIGTERM
FAULTS_OF_THE_HOST = (signal.SIGKILL, signal.SIGTERM)
"""Signals that an author's code doesn't die of by itself."""

log = logging.getLogger("clotho")


@dataclass(frozen=True)
class AuthorCode:
    """An environment, its configuration, and the code that it is run from."""

    environment: str
    config: Mapping[str, JsonValue]
    code: Code | None
    """None: as it is on this host's disk."""
    variables: tuple[str, ...] = ()
    """Environment variables of the worker that its processes get."""


_open_groups: set[int] = set()
"""The process groups of authors' code that this worker has started, and that haven't ended."""


def end_all_groups() -> None:
    """End all author processes and what these have started: the last act of a worker that ends at once.

    The kernel ends author processes with their worker, but not the programs that they run.
    """
    for group in _open_groups:
        with suppress(ProcessLookupError):
            os.killpg(group, signal.SIGKILL)


class AuthorProcess:
    """One process with an instance of an environment, which serves one caller at a time.

    While it serves a call, it asks the worker for tools; the worker may call it again to answer.
    """

    def __init__(self, process: asyncio.subprocess.Process, channel: Channel, memory_bytes: int) -> None:
        self._process = process
        self._channel = channel
        self._memory_bytes = memory_bytes
        self._answers: dict[int, asyncio.Future[Message]] = {}
        self._callers: dict[int, Caller] = {}
        self._serving: set[asyncio.Task[None]] = set()
        self._numbers = itertools.count()
        self._ended: str | None = None
        """Why this worker ended it."""
        self.uses = 0
        self._at_first: tuple[int, int] | None = None
        self._descriptors = 0
        self._left_alone = False
        self.drawn = False
        """Whether items were taken from its instance's dataset."""
        self.facts: Mapping[str, Any] = {}
        self._exit = asyncio.create_task(self._wait_for_exit())
        self._reading = asyncio.create_task(self._read())
        _open_groups.add(process.pid)

    @classmethod
    async def start(cls, code: AuthorCode, memory_bytes: int) -> "AuthorProcess":
        """Start a process, and set its instance up. Raises what making and setting it up raises."""
        process = await cls._started(code, memory_bytes)
        try:
            blobs = () if code.code is None else (code.code.model_dump_json().encode(),)
            fields = {"environment": code.environment, "config": dict(code.config)}
            process.facts = (await process.call("start", fields, blobs)).fields
        except BaseException:
            # a cancelled start, too: no pool knows this process, so nobody else would end it
            process.kill("it couldn't be set up")
            raise
        return process

    @classmethod
    async def _started(cls, code: AuthorCode, memory_bytes: int) -> "AuthorProcess":
        here, there = socket.socketpair()
        try:
            # closed here once the process has it: the channel would else not end with the process
            with there:
                command = application.command(
                    "clotho.environment.author_process", str(there.fileno()), str(os.getpid())
                )
                # a session of its own: Ctrl-C reaches it through this process alone, `kill` what it has started
                # forked on the event loop's thread: PR_SET_PDEATHSIG acts when the thread that forked ends
                process = await asyncio.create_subprocess_exec(
                    *command,
                    stdin=asyncio.subprocess.DEVNULL,
                    pass_fds=(there.fileno(),),
                    env=environment_for_authors(code.variables),
                    start_new_session=True,
                )
            return cls(process, await Channel.over(here), memory_bytes)
        except (OSError, RuntimeError) as error:  # no process, descriptor or thread is left on this host
            here.close()
            raise HostUnavailable(f"a process for the environment: {described(error)}") from error

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def alive(self) -> bool:
        return self._ended is None and not self._reading.done()

    @property
    def worn(self) -> bool:
        """Whether another should take its place: it is dead, or was used much, or what it did has piled up."""
        if not self.alive or self._left_alone or self.uses >= MOST_USES:
            return True
        at_first = self._at_first
        return at_first is not None and (
            self._descriptors > at_first[0] + DESCRIPTORS_KEPT
            or resident_bytes(self.pid) > at_first[1] + GROWTH_KEPT
        )

    async def call(
        self,
        method: str,
        fields: Mapping[str, Any],
        blobs: Sequence[bytes] = (),
        calls: ContextCalls | None = None,
        clock: WorkClock | None = None,
        nested: bool = False,
    ) -> Message:
        """Call the author's `method`; `calls` answer what its context asks of this worker.

        Raises TimedOut where it takes longer than `clock` lets it, and AuthorProcessEnded where it takes more
        memory than a process may have, or the process ends by its own doing. Each leaves the process dead, and so
        does a cancel; only a `nested` call that times out leaves it alive, since the outer call goes on.
        """
        number, clock = next(self._numbers), clock or WorkClock(None)
        answer = self._answers[number] = asyncio.get_running_loop().create_future()
        self._callers[number] = Caller(self, calls, clock)
        try:
            with suppress(Closed):  # its end is told below
                await self._channel.send(Message({**fields, "request": number, "method": method}, blobs))
            await self._watch(method, answer, clock, nested)
        except asyncio.CancelledError:
            # the author's thread can't be interrupted: it ends with its process
            self.kill("its caller was cancelled")
            raise
        finally:
            del self._answers[number], self._callers[number]
        message: Message = answer.result()
        self.uses += 1
        self._descriptors = message.fields.get("descriptors", 0)
        # after the first call: what that imports and loads would else count as growth
        if method != "start" and self._at_first is None:
            self._at_first = self._descriptors, resident_bytes(self.pid)
        if "error" in message.fields:
            raise error_of(message.fields)
        return message

    async def _watch(
        self, method: str, answer: "asyncio.Future[Message]", clock: WorkClock, nested: bool
    ) -> None:
        """Wait for `answer`, and kill the process where a bound is met."""
        while not answer.done():
            pauses = (WATCH_SECONDS, clock.left)
            await asyncio.wait([answer], timeout=min(max(0.0, p) for p in pauses if p is not None))
            if answer.done():
                return
            if clock.left is not None and clock.left <= 0:
                if nested:  # the call that this one serves goes on
                    self._left_alone = True
                else:
                    self.kill(f"{method} took longer than {clock.limit:g} s")
                raise TimedOut
            if (taken := memory_over(self.pid, self._memory_bytes)) is not None:
                reason = f"{method} took {taken >> 20} MiB of memory, over {self._memory_bytes >> 20}"
                self.kill(reason)
                raise AuthorProcessEnded(f"the environment's process was ended: {reason}")

    def kill(self, reason: str) -> None:
        """Send SIGKILL to the process and to what it has started."""
        if self._ended is None:
            self._ended = reason
        # the number of a process that was waited for may be another group's by now
        if self._process.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
        self._channel.close()

    async def ended(self) -> None:
        """Wait for its end."""
        await asyncio.wait([self._reading])

    async def _wait_for_exit(self) -> int:
        """Wait until the process has ended, and end what it has started; returns its status."""
        status = await self._process.wait()
        # a child that it forked holds the channel open: without its end, nobody would notice this one
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        return status

    async def _read(self) -> None:
        while True:
            try:
                message = await self._channel.receive()
            except Closed:
                break
            if (number := message.fields.get("answered")) is not None:
                # none for a nested call that ran out of time: its answer comes too late
                if (answer := self._answers.get(number)) is not None and not answer.done():
                    answer.set_result(message)
                continue
            # not awaited: the answers of other calls come over the same channel
            served = asyncio.create_task(self._serve(message))
            self._serving.add(served)
            served.add_done_callback(self._serving.discard)
        self._channel.close()
        with suppress(ProcessLookupError):  # it may have closed the channel and gone on
            os.killpg(self._process.pid, signal.SIGKILL) if self._process.returncode is None else None
        status = await self._exit
        _open_groups.discard(self._process.pid)
        for served in self._serving:
            served.cancel()
        for answer in self._answers.values():
            if not answer.done():
                answer.set_exception(self._end(status))
                answer.exception()  # nobody may be waiting for it any more

    def _end(self, status: int) -> ClothoError:
        """The failure of calls that it left without an answer."""
        # first: the kill of this worker's own is a SIGKILL, too
        if self._ended is not None:
            return AuthorProcessEnded(f"the environment's process was ended: {self._ended}")
        if status < 0 and -status in FAULTS_OF_THE_HOST:
            return HostUnavailable(f"the environment's process was killed by {signal.Signals(-status).name}")
        how = f"by {_signal_name(-status)}" if status < 0 else f"with status {status}"
        return AuthorProcessEnded(f"the environment's process ended {how}")

    async def _serve(self, message: Message) -> None:
        """Make a call for the author's code, and send its answer."""
        fields = message.fields
        caller = self._callers.get(fields["of"])
        try:
            if caller is None:
                raise EnvironmentFailed("a context was used after its call had ended")
            # for this task alone: each message is served in a task, whose context is its own
            caller.enter()
            answer = await _answer(caller, fields, message.blobs)
        except ClothoError as error:
            answer = Message(error_fields(error))
        except Exception as error:  # of Clotho's own code: the caller has kept it
            log.warning("a call of an environment's code failed", exc_info=True)
            answer = Message(error_fields(HostUnavailable(described(error))))
        with suppress(Closed):
            await self._channel.send(Message({**answer.fields, "reply": fields["id"]}, answer.blobs))


@dataclass(frozen=True)
class Caller:
    """The worker's call that the author's code of a process works at."""

    process: AuthorProcess
    calls: Any
    clock: WorkClock

    def enter(self) -> None:
        """Let the running task work for this call."""
        current_caller.set(self)
        current_clock.set(self.clock)


current_caller: ContextVar[Caller | None] = ContextVar("caller", default=None)
"""The author's call that the running task serves: its process answers what that asks of the environment."""


async def _answer(caller: Caller, fields: Mapping[str, Any], blobs: Sequence[bytes]) -> Message:
    if fields["ask"] == "extend":
        caller.clock.extend(float(fields["seconds"]))
        return Message({})
    calls = caller.calls.grading if fields["grading"] else caller.calls
    match fields["ask"]:
        case "call_tool":
            # a command's time is the author's; opening the sandbox stops the clock by itself
            return Message({"answer": await calls.call_tool(fields["name"], fields["arguments"])})
        case "ask_judge":
            with infrastructure_wait():
                return Message({"answer": await calls.ask_judge(fields["prompt"])})
        case "read_bytes":
            content = await calls.read_bytes(fields["path"], fields["max_bytes"])
            return Message({}, () if content is None else (content,))
        case "write_bytes":
            await calls.write_bytes(fields["path"], blobs[0])
            return Message({})
        case "hidden_files":
            return Message({"answer": await calls.hidden_files()})
        case "host_failed":
            await calls.host_failed(fields["reason"])
            return Message({})
        case "claim":
            with infrastructure_wait():
                return Message({"answer": await calls.claim()})
    raise EnvironmentFailed(f"there is no {fields['ask']!r} to ask for")


def memory_over(pid: int, bound: int) -> int | None:
    """Bytes of memory that a process and its descendants take, if they are more than `bound`; None otherwise."""
    if resident_bytes(pid) <= bound:
        return None
    # read only now, since the kernel walks all pages for it: pages that forked processes share count once
    taken = resident_bytes(pid, _proportional_bytes)
    return taken if taken > bound else None


def resident_bytes(pid: int, of: Callable[[Path], int] | None = None) -> int:
    """Bytes of memory that a process and its descendants have resident; 0 for one that has ended.

    Pages that processes share count for each of them, unless `of` measures a process otherwise.
    """
    measure, total, open_pids = of or _resident_bytes, 0, [pid]
    while open_pids:
        process = Path(f"/proc/{open_pids.pop()}")
        with suppress(OSError, ValueError, IndexError):
            total += measure(process)
            # the kernel lists a child under the thread that started it
            for thread in os.listdir(process / "task"):
                open_pids += map(int, (process / "task" / thread / "children").read_text().split())
    return total


def _resident_bytes(process: Path) -> int:
    return int((process / "statm").read_text().split()[1]) * PAGE


def _proportional_bytes(process: Path) -> int:
    try:
        fields = (line.split() for line in (process / "smaps_rollup").read_text().splitlines())
        return next(int(kilobytes) << 10 for name, kilobytes, *_ in fields if name == "Pss:")
    except (OSError, StopIteration):
        # kernels may be built without it, and the bound must hold there too
        return _resident_bytes(process)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
