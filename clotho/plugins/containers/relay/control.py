"""The control directory of a supervisor elsewhere, through its relay.

All requests of one call are sent together, and the relay obeys them in their order: a job is staged, requested and
followed in one round trip. Where the stream ends meanwhile, the call repeats its steps over another one; all steps
may be repeated.
"""

import asyncio
import errno
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from clotho.errors import SandboxLost
from clotho.plugins.containers.relay import fields, requests
from clotho.plugins.containers.relay.loop import blocking, renewal, submit
from clotho.plugins.containers.relay.pipe import RelayPipe
from clotho.plugins.containers.relay.reconnecting import Relay
from clotho.plugins.containers.relay.stream import MOST_DATA, RelayStream, StreamEnded
from clotho.sandbox.supervised.files import KEY, NO_FILE, SMALL_BYTES, damaged
from clotho.sandbox.supervised.interface import JOBS, fence_mark

RECHECK_SECONDS = 30.0
POLL_SECONDS = 0.05
"""Seconds after which a waiter looks whether a file has grown: a relay tells of new entries alone."""
ROOM_BYTES = 64 << 10
# each is a wait in the relay, which bears 1,024 from all callers together
MOST_FOLLOWED = 64
FOLLOWED = ("started", "done", "pid", "out")
"""The files of a job that are told of at its end."""


class RelayedControl:
    """`renewed` is called with the seconds of each renewal; `full` makes the error of a full disk."""

    def __init__(
        self, name: str, relay: Relay, renewed: Callable[[float], None], full: requests.Full
    ) -> None:
        self._name = name
        self.relay = relay
        self._renewed = renewed
        self._full = full
        self._followed: OrderedDict[str, asyncio.Task[requests.Looked]] = OrderedDict()

    @property
    def name(self) -> str:
        return self._name

    def _ask(self, verb: str, payload: bytes = b"") -> bytes:
        return blocking(self.relay.ask(verb, payload))

    # ---- the supervisor ----

    def incarnation(self) -> str | None:
        with suppress(SandboxLost):
            return self._ask("A").decode(errors="replace").strip() or None
        return None

    def was_started(self) -> bool:
        return self.size_of("alive") > 0

    def renew(self, seconds: float) -> None:
        told = self.relay.ask("Y", fields.path(f"lease {max(1, round(seconds))}"))
        self._said(renewal(self._name, told))
        self._renewed(seconds)

    def sealed(self) -> bool:
        return self.exists("sealed")

    def say(self, *words: str) -> None:
        self._said(self.relay.ask("Y", fields.path(" ".join(words))))

    def _said(self, request: Coroutine[Any, Any, bytes]) -> None:
        try:
            blocking(request)
        except OSError as error:
            raise requests.unsaid(error) from None

    def require_room(self) -> None:
        available, total = fields.two_numbers(self._ask("Z"))
        if available < min(ROOM_BYTES, total // 8):
            raise self._full()

    # ---- staging ----

    def stage(self, folder: str, key: str, entries: Mapping[str, bytes], fifo: str | None = None) -> bool:
        async def stage(stream: RelayStream) -> bool:
            made = await requests.StagedEntry(stream, folder, key, entries, fifo).asked()
            return requests.is_new(made, self._full)

        return blocking(self.relay.steps(stage))

    def submit(self, key: str, entries: Mapping[str, bytes], fence: int = 0) -> bool:
        return blocking(self.relay.steps(lambda stream: self._submit(stream, key, entries, fence)))

    async def _submit(self, stream: RelayStream, key: str, entries: Mapping[str, bytes], fence: int) -> bool:
        """Ask for the seal in the same round trip as for the job: a sealed supervisor starts nothing anyway."""
        sealed = stream.ask("S", fields.path("sealed"))
        run = stream.ask("Y", fields.path(" ".join(("run", key, *fence_mark(fence)))))
        not_sealed, *made, unsaid = await requests.StagedEntry(stream, JOBS, key, entries).asked(sealed, run)
        if not_sealed is None:
            raise SandboxLost("the sandbox was sealed for verification: it runs no more commands")
        new = requests.is_new(made, self._full)
        if unsaid is not None:
            raise requests.unsaid(unsaid)
        self._follow(stream, key)
        return new

    def _follow(self, stream: RelayStream, key: str) -> None:
        """Have the relay tell of the job's end, along with all files that callers read then."""
        along = [f"{JOBS}/{key}/{name}" for name in FOLLOWED]
        self._followed[key] = asyncio.ensure_future(requests.look(stream, along[1:2], along))
        # looked at, so that asyncio doesn't log an error that nobody asks for
        self._followed[key].add_done_callback(lambda ended: ended.cancelled() or ended.exception())
        while len(self._followed) > MOST_FOLLOWED:
            self._followed.popitem(last=False)[1].cancel()

    def place(self, path: str, content: bytes) -> None:
        self._make(path, content, "R")

    def publish(self, path: str, content: bytes) -> None:
        self._make(path, content, "L")

    def _make(self, path: str, content: bytes, verb: str) -> None:
        folder, _, name = path.rpartition("/")

        async def make(stream: RelayStream) -> None:
            unfinished = f"{folder}/{requests.unfinished_name(name)}"
            asked = [
                *requests.writes(stream, unfinished, content),
                stream.ask(verb, fields.path(unfinished, path)),
            ]
            # EEXIST: published by an attempt before this one
            failed = next(
                (each for each in await requests.ask_all(asked) if each and each.errno != errno.EEXIST), None
            )
            # in any case: a link leaves the first name in place
            await stream.ask("X", fields.path(unfinished))
            if failed:
                raise requests.unwritten(failed, self._full)

        blocking(self.relay.steps(make))

    def touch(self, path: str, changed: float | None = None) -> None:
        # 0: now, by the clock of the machine
        time = 0 if changed is None else max(1, round(changed * 1e9))
        try:
            self._ask("T", fields.path(path) + fields.number(time))
        except OSError as error:
            raise requests.unwritten(error, self._full) from error

    def make_readable(self, path: str) -> None:
        self._ask("C", fields.path(path))

    def remove(self, path: str) -> None:
        self._ask("X", fields.path(path))

    # ---- reading ----

    def keys(self, folder: str) -> list[str]:
        found = self._ask("N", fields.path(folder)).decode(errors="replace").split("\0")
        return sorted(filter(KEY.fullmatch, found))

    def look(self, *paths: str) -> tuple[str | None, Sequence[str | None]]:
        known = self._known_end(paths[0])
        if all(path in known for path in paths):
            incarnation, contents = None, [known[path] for path in paths]
        else:
            incarnation, contents = blocking(
                self.relay.steps(lambda stream: requests.look(stream, (), paths))
            )
        return incarnation, [
            requests.text_of(path, content) for path, content in zip(paths, contents, strict=True)
        ]

    def _known_end(self, path: str) -> Mapping[str, bytes | int]:
        """The files of a followed job that has ended; none while it runs, or of one that isn't followed."""
        followed = self._followed.get(path.split("/")[1]) if path.startswith(f"{JOBS}/") else None
        if (
            followed is None
            or not followed.done()
            or followed.cancelled()
            or followed.exception() is not None
        ):
            return {}
        key, contents = path.split("/")[1], followed.result()[1]
        found = {f"{JOBS}/{key}/{name}": each for name, each in zip(FOLLOWED, contents, strict=True)}
        # without this file it is the supervisor that has ended, not the job
        return found if isinstance(found[f"{JOBS}/{key}/done"], bytes) else {}

    def text_of(self, path: str) -> str | None:
        return self.look(path)[1][0]

    def start_of(self, path: str, limit: int, offset: int = 0) -> bytes:
        known = self._known_end(path).get(path)
        # a relay tells so much of a file along with others: a shorter one is whole
        if isinstance(known, bytes) and (len(known) < SMALL_BYTES or offset + limit <= len(known)):
            return known[offset : offset + max(0, limit)]
        parts: list[bytes] = []
        while limit > 0 and (part := self._piece(path, min(limit, MOST_DATA), offset)):
            parts.append(part)
            limit -= len(part)
            offset += len(part)
        return b"".join(parts)

    def _piece(self, path: str, limit: int, offset: int) -> bytes:
        try:
            return self._ask("G", fields.path(path) + fields.number(offset) + fields.size(limit))
        except OSError as error:
            if error.errno in NO_FILE:
                raise damaged(path) from error
            raise

    def _stat(self, path: str) -> tuple[int, int]:
        return fields.two_numbers(self._ask("S", fields.path(path)))

    def size_of(self, path: str) -> int:
        try:
            return self._stat(path)[0]
        except FileNotFoundError:
            return 0

    def exists(self, path: str) -> bool:
        return blocking(self.relay.steps(lambda stream: requests.exists(stream, path)))

    def changed(self, path: str) -> float:
        return self._stat(path)[1] / 1e9

    # ---- waiting ----

    @contextmanager
    def watching(self, event: asyncio.Event, *paths: str) -> Iterator[float]:
        loop = asyncio.get_running_loop()

        async def watch() -> None:
            try:
                followed = self._followed.get(paths[0].split("/")[1]) if len(paths) == 1 else None
                if followed is not None:
                    await asyncio.wait([followed])
                # a follow that failed, as with its stream, told nothing: the relay is asked anew
                if followed is None or followed.cancelled() or followed.exception() is not None:
                    await self.relay.steps(lambda stream: requests.look(stream, paths, ()))
            finally:
                with suppress(RuntimeError):  # the loop has closed
                    loop.call_soon_threadsafe(event.set)

        watching = submit(watch())
        watching.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
        try:
            yield RECHECK_SECONDS
        finally:
            watching.cancel()

    @contextmanager
    def growing(self, event: asyncio.Event, path: str) -> Iterator[float]:
        yield POLL_SECONDS

    @contextmanager
    def pipe(self, path: str, *, writing: bool) -> Iterator[RelayPipe]:
        async def begin() -> tuple[RelayStream, int]:
            stream = await self.relay.stream()
            number, answer = stream.begin()
            await stream.send(number, "P", bytes((writing,)) + fields.path(path))
            await stream.answered(answer)
            return stream, number

        stream, number = blocking(begin())
        opened = RelayPipe(stream, number, writing)
        try:
            yield opened
            opened.flush()
        finally:
            with suppress(StreamEnded):
                blocking(stream.ask("Q", fields.number(number)))

    # ---- folders outside of the directory ----

    def make_folder(self, path: str, mode: int = 0o755, *, clear: bool = False) -> None:
        """A folder of the commands' user; `clear`: without what the image has in it."""
        self._ask("O", fields.path(path) + fields.number(mode | clear << 16))

    def link_folder(self, path: str, target: str) -> None:
        self._ask("I", fields.path(target, path))
