"""A worker's way to the browser of its host: started once for all of the host's workers, found by its socket."""

import asyncio
import base64
import fcntl
import json
import logging
import shutil
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from clotho.config import cache_folder
from clotho.errors import HostUnavailable
from clotho.host import program_on_path
from clotho.plugins.browser.launch import chromium, lacking, socket_path
from clotho.processes.parent_death import with_parent_death_signal

log = logging.getLogger("clotho")

START_SECONDS = 60.0
CLOSE_SECONDS = 5.0
# 16 MiB of downloads, or of a site's answer, are 22 MiB in base64
MOST_LINE_BYTES = 64 << 20
SOCKET = "socket"
SCOPE_CHARS = 16
"""Paths of sockets are short."""

Fields = dict[str, Any]
Site = Callable[[int, str, bytes], Awaitable[bytes]]
"""Answers a page's request, by its number and host, in the sandbox."""
Wire = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class BrowserGone(Exception):
    """The browser's process ended before it answered."""


async def close_pages(scope: str, rollout: str) -> None:
    await BrowserClient(scope).close(rollout)


class BrowserClient:
    """The browser of the workers that share `scope`."""

    def __init__(self, scope: str) -> None:
        self._folder = cache_folder() / "browsers" / scope[:SCOPE_CHARS]

    @asynccontextmanager
    async def connected(self) -> AsyncIterator["Conversation"]:
        """A connection to the browser's process, which is started where there is none; raises HostUnavailable."""
        reader, writer = await self._connect() or await self._start()
        try:
            yield Conversation(reader, writer)
        finally:
            writer.close()

    async def close(self, rollout: str) -> None:
        """Close the rollout's pages, if there are any; nothing waits for a browser that hangs or isn't reached."""
        try:
            async with asyncio.timeout(CLOSE_SECONDS):
                if (wire := await self._connect()) is None:
                    return
                try:
                    await Conversation(*wire).ask({"do": "close", "rollout": rollout})
                finally:
                    wire[1].close()
        except (BrowserGone, OSError) as error:  # a TimeoutError, too: the pages make way for others' later
            log.info("pages of %s not closed: %s", rollout, error or type(error).__name__)

    async def _connect(self) -> Wire | None:
        with suppress(FileNotFoundError, ConnectionError), socket_path(self._folder / SOCKET) as path:
            return await asyncio.open_unix_connection(path, limit=MOST_LINE_BYTES)
        return None

    async def _start(self) -> Wire:
        """Start the process, or wait for the worker that does."""
        if (need := lacking()) is not None:
            raise HostUnavailable(need)
        self._folder.parent.mkdir(parents=True, exist_ok=True)
        deadline = time.monotonic() + START_SECONDS
        with (self._folder.parent / f"{self._folder.name}.lock").open("w") as lock:
            while True:
                if (wire := await self._connect()) is not None:
                    return wire
                # not waiting for the lock: its holder has it until the browser listens, and the loop must go on
                with suppress(BlockingIOError):
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                if time.monotonic() > deadline:
                    raise HostUnavailable("another worker's browser didn't start")
                await asyncio.sleep(0.05)
            # another worker may have started it before this one had the lock
            return await self._connect() or await self._started(deadline)

    async def _started(self, deadline: float) -> Wire:
        await self._make_folder(deadline)
        program = chromium()
        assert program is not None
        path = str((program_on_path("bwrap") or Path("/usr/bin/bwrap")).parent)
        # not a pipe: nobody would read it once the browser listens
        with (self._folder / "log").open("wb") as log:
            process = await asyncio.create_subprocess_exec(
                *with_parent_death_signal(
                    [
                        sys.executable,
                        "-m",
                        "clotho.plugins.browser.process.server",
                        str(self._folder),
                        str(program),
                    ]
                ),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={
                    **{"PATH": f"{path}:/usr/bin:/bin", "LANG": "C.UTF-8"},
                    **{"HOME": str(self._folder), "TMPDIR": str(self._folder / "tmp")},
                },
                cwd="/",
                # Ctrl-C at the worker's terminal must not end pages of calls that the worker still finishes
                start_new_session=True,
            )
        while (wire := await self._connect()) is None:
            if process.returncode is not None or time.monotonic() > deadline:
                said = (self._folder / "log").read_text(errors="replace").strip().splitlines()
                raise HostUnavailable(f"the browser didn't start: {said[-1] if said else 'it said nothing'}")
            await asyncio.sleep(0.02)
        return wire

    async def _make_folder(self, deadline: float) -> None:
        """Make the folder anew, once a browser that is just ending writes no more into the last one."""
        while True:
            # errors ignored: a file that comes meanwhile makes it fail, and then mkdir
            await asyncio.to_thread(shutil.rmtree, self._folder, True)
            with suppress(FileExistsError):
                self._folder.mkdir()
                (self._folder / "tmp").mkdir(mode=0o700)
                return
            if time.monotonic() > deadline:
                raise HostUnavailable(f"the files of the last browser can't be removed: {self._folder}")
            await asyncio.sleep(0.05)


class Conversation:
    """One call, from its opening to its answer."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def ask(self, message: Fields, site: Site | None = None) -> Fields:
        """The answer to a message; `site` answers requests to the sandbox meanwhile. Raises BrowserGone."""
        serving: set[asyncio.Task[None]] = set()
        reading: asyncio.Task[Fields] | None = None
        try:
            await self._write(message)
            while True:
                reading = reading or asyncio.ensure_future(self._read())
                done, _ = await asyncio.wait({reading, *serving}, return_when=asyncio.FIRST_COMPLETED)
                for served in done & serving:
                    # what the sandbox raised ends the call, as it would end a command's
                    served.result()
                    serving.discard(served)
                if reading not in done:
                    continue
                answer, reading = reading.result(), None
                if "site" not in answer:
                    return answer
                assert site is not None
                serving.add(asyncio.ensure_future(self._serve(site, answer)))
        except ConnectionError as error:
            raise BrowserGone from error
        finally:
            for task in (*serving, *filter(None, (reading,))):
                task.cancel()

    async def _serve(self, site: Site, asked: Fields) -> None:
        response = await site(asked["site"], asked["host"], base64.b64decode(asked["request"]))
        await self._write({"site": asked["site"], "response": base64.b64encode(response).decode()})

    async def _read(self) -> Fields:
        line = await self._reader.readline()
        # a line without an end was cut off when the browser's process ended
        if not line.endswith(b"\n"):
            raise BrowserGone
        answer: Fields = json.loads(line)
        return answer

    async def _write(self, message: Fields) -> None:
        self._writer.write(json.dumps(message).encode() + b"\n")
        await self._writer.drain()
