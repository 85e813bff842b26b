"""The process of a host's browser: one Chromium, and a context in it for each rollout that has pages open.

Run as `python -m clotho.plugins.browser.process.server FOLDER CHROMIUM`. It listens on a socket in the folder,
and ends with the worker that started it, and Chromium with it. Its messages are JSON, one on a line.
"""

import asyncio
import os
import sys
from contextlib import suppress
from pathlib import Path

from playwright.async_api import Browser, Error, Playwright, async_playwright

from clotho.plugins.browser.launch import socket_path, write_program
from clotho.plugins.browser.process.actions import ACTIONS, Problem, bounded, said
from clotho.plugins.browser.process.connection import Connection, SandboxSites
from clotho.plugins.browser.process.memory import end_largest_over
from clotho.plugins.browser.process.session import Ended, Fields, Session

SOCKET = "socket"
MOST_SESSIONS = 64
MOST_MEMORY_BYTES = 8 << 30
"""Memory of Chromium's processes together, beyond which the largest page is ended."""
# 16 MiB of downloads, or of a site's answer, are 22 MiB in base64
MOST_LINE_BYTES = 64 << 20
LOOK_SECONDS = 2.0
OPENING_PAUSES = (0.1, 0.5, 2.0)
STUCK_SECONDS = 60.0
"""Seconds beside those for a page's loading, after which a call is given up with its page."""
REBUILT = (
    "The browser had ended and was started again. Cookies and local storage are those of your last call, and {} "
    "was opened anew: what was typed into it is lost, and refs have changed."
)
NOT_REBUILT = (
    "The browser had ended and was started again. Cookies and local storage are those of your last call, but {} "
    "couldn't be opened again: {}."
)
NOT_DONE = "Nothing was done: look at the page as it is now, and repeat the call if it is still right. "
ENDED = "The browser ended during the call, which may have had its effect. "
INTERRUPTED = (
    "The call was interrupted and its answer is lost. It may have had its effect, so it wasn't made again: this is "
    "the page as it is now."
)
STUCK = "The page gave no answer, and was closed: no page is open now."
MOST_ERROR_CHARS = 500
READING = frozenset({"browser_snapshot", "browser_get_images", "browser_vision"})
FREE = READING | {"browser_navigate", "browser_console"}
"""Tools that refer to nothing of the page as an earlier call showed it."""


class Server:
    def __init__(self, driver: Playwright, folder: Path, chromium: Path) -> None:
        self._driver = driver
        self._folder = folder
        self._program = write_program(folder, chromium, MOST_SESSIONS)
        self._browser: Browser | None = None
        self._launching = asyncio.Lock()
        self._sessions: dict[str, Session] = {}
        self._sites: dict[str, SandboxSites] = {}
        self._slots = set(range(MOST_SESSIONS))
        """Those that no session has, nor one that is being closed."""

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with suppress(ConnectionError):
                await self._serve(Connection(reader, writer))
        finally:
            writer.close()

    async def watch_memory(self) -> None:
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            await asyncio.to_thread(end_largest_over, MOST_MEMORY_BYTES)

    async def _serve(self, worker: Connection) -> None:
        asked = await worker.read()
        if asked is None:
            return
        if asked["do"] == "close":
            await self._close_rollout(asked["rollout"])
            await worker.write({"closed": True})
            return
        await self._require_driver()
        try:
            session = await self._session(asked)
        except Error as error:
            await worker.write({"failed": said(error)})
            return
        await worker.write({"busy": True} if session is None else {"known": asked["key"] in session.calls})
        call = await worker.read()
        if session is None or call is None:
            return
        sites = self._sites[asked["session"]]
        serving = asyncio.ensure_future(sites.serve(worker))
        work = asyncio.ensure_future(
            session.once(asked["key"], lambda: self._call(session, asked["key"], call))
        )
        await asyncio.wait({serving, work}, return_when=asyncio.FIRST_COMPLETED)
        if not work.done():  # the worker is gone; the call goes on, and its answer is kept
            sites.lose(worker)
            return
        serving.cancel()
        sites.leave(worker)
        try:
            answer = work.result()
        except Error as error:  # no browser can be started
            answer = {"failed": said(error)}
        # a dead driver fails every call: once this process has ended, the worker starts another with a new driver
        if "failed" in answer or not answer["result"]["success"]:
            await self._require_driver()
        await worker.write(answer)

    async def _require_driver(self) -> None:
        """End this process where Playwright's driver has ended: the client then starts a new one."""
        try:
            await (await self._driver.request.new_context()).dispose()
        except Error:
            # sys.exit would first unwind `async_playwright`, which talks to the driver
            os._exit(1)

    async def _session(self, asked: Fields) -> Session | None:
        """Find or make the session; the least recently used idle one makes way. None where all are busy."""
        name = asked["session"]
        await self._chromium()  # before the call is claimed: one that can't be made yet is not begun
        # in a loop: another call may take the slot that was freed, or open this session, meanwhile
        while name not in self._sessions and not self._slots:
            idle = next((each for each, one in self._sessions.items() if not one.lock.locked()), None)
            if idle is None:
                return None
            await self._end(idle)
        if name not in self._sessions:
            sites = self._sites[name] = SandboxSites()
            served = dict.fromkeys(asked["settings"]["sites"], sites.ask)
            self._sessions[name] = Session(
                self._slots.pop(), self._folder, asked["rollout"], asked["settings"], served
            )
        self._sessions[name] = session = self._sessions.pop(name)  # the last is the last that was used
        return session

    async def _close_rollout(self, rollout: str) -> None:
        for name in [name for name, session in self._sessions.items() if session.rollout == rollout]:
            await self._end(name)

    async def _end(self, name: str) -> None:
        # before it is closed: a call that comes meanwhile gets a session of its own, on another slot
        del self._sites[name]
        session = self._sessions.pop(name)
        try:
            await session.close()
        finally:
            # only now: a session on the same slot would lose its socket when this one's proxy stops
            self._slots.add(session.slot)

    async def _chromium(self) -> Browser:
        async with self._launching:
            if self._browser is None or not self._browser.is_connected():
                self._browser = await self._driver.chromium.launch(
                    executable_path=self._program,
                    # nobody listens there: what belongs to no context has no way out
                    proxy={"server": "http://127.0.0.1:1"},
                    # MiB of a page's JavaScript: a page beyond them crashes alone, long before MOST_MEMORY_BYTES
                    args=["--js-flags=--max-old-space-size=1024", "--disable-extensions"],
                )
                self._browser.on("disconnected", self._lost)
            return self._browser

    def _lost(self, browser: Browser) -> None:
        for session in self._sessions.values():
            session.lost()

    async def _call(self, session: Session, key: str, call: Fields) -> Fields:
        async with session.lock:
            try:
                async with asyncio.timeout(session.seconds + STUCK_SECONDS):
                    return await self._answer(session, key, call)
            except TimeoutError:  # any page of it may be the one that hangs: the next call begins without one
                await session.close_context()
                state = {"url": None, "last": None}
                return {"result": {"success": False, "error": STUCK}, "state": state}

    async def _answer(self, session: Session, key: str, call: Fields) -> Fields:
        session.attached = {}
        try:
            fields = await self._made(session, call)
        except Ended:
            if call["tool"] in READING:
                fields = await self._read_again(session, call)
            else:
                fields = await self._rebuilt(session, call, ENDED)
        session.last = key
        try:
            state = await session.saved()
        except Ended:  # the next call opens the page that this one shows, and says so
            state = {"url": fields.get("url", call["url"]), "last": key}
        return {"result": fields, "state": state, "attached": session.attached}

    async def _made(self, session: Session, call: Fields) -> Fields:
        """The result of a call, in the context as the rollout's last call left it."""
        begun, tool = call["begun"], call["tool"]
        note: Fields = {}
        if not session.alive or session.last != call["expect"]:
            rebuilt = await self._reopen(session, call)
            # a rollout's first call finds no context, and none was lost
            note = {} if call["expect"] is None else {"note": rebuilt}
        if begun:
            return {"success": False, **await _present(session), "error": INTERRUPTED, **note}
        if note and tool not in FREE:
            return {"success": False, **await _present(session), "error": NOT_DONE + note["note"]}
        # what the page has printed is here; an expression would wait until the dialog is closed
        reads = tool == "browser_console" and not call["arguments"].get("expression")
        if session.asked is not None and tool != "browser_dialog" and not reads:
            error = "A dialog is open: answer it with browser_dialog"
            return {"success": False, "error": error, "pending_dialog": session.asked}
        try:
            return {"success": True, **bounded(await ACTIONS[tool](session, call["arguments"])), **note}
        except Ended:
            raise
        except Problem as problem:
            return {"success": False, "error": str(problem), **note}
        except Error as error:
            return {"success": False, "error": said(error), **note}
        except Exception as error:  # of what a policy or a page made up: no later attempt would go better
            return {"success": False, "error": f"The call failed: {error}"[:MOST_ERROR_CHARS], **note}

    async def _read_again(self, session: Session, call: Fields) -> Fields:
        try:
            return await self._made(session, call)
        except Ended:
            return await self._rebuilt(session, call, ENDED)

    async def _reopen(self, session: Session, call: Fields) -> str:
        """Open the context as the call expects it; returns what the model is told of it."""
        failure = await self._open(session, call)
        if failure is not None:
            return NOT_REBUILT.format(call["url"], said(failure))
        return REBUILT.format(call["url"] or "no page")

    async def _open(self, session: Session, call: Fields) -> Error | None:
        """Open the context, again where Chromium is just ending; returns why the page didn't load."""
        for pause in OPENING_PAUSES:
            try:
                return await session.open(await self._chromium(), call["storage"], call["url"])
            except (Ended, Error):
                await asyncio.sleep(pause)
        return await session.open(await self._chromium(), call["storage"], call["url"])

    async def _rebuilt(self, session: Session, call: Fields, why: str) -> Fields:
        """The result of a call in which the page ended; the context is as it was before."""
        note = await self._reopen(session, call)
        try:
            return {"success": False, **await _present(session), "error": why + note}
        except (Ended, Error):
            return {"success": False, "error": why + note}


async def _present(session: Session) -> Fields:
    try:
        return {**await session.place(), **await session.snapshot()}
    except Error as error:
        return {"url": session.page.url, "snapshot": f"It can't be shown: {said(error)}"}


async def serve(folder: Path, chromium: Path) -> None:
    async with async_playwright() as driver:
        server = Server(driver, folder, chromium)
        path = folder / SOCKET
        path.unlink(missing_ok=True)
        with socket_path(path) as short:
            listening = await asyncio.start_unix_server(server.accept, short, limit=MOST_LINE_BYTES)
        async with listening, asyncio.TaskGroup() as tasks:
            tasks.create_task(server.watch_memory())
            await listening.serve_forever()


def main() -> None:
    folder, chromium = map(Path, sys.argv[1:])
    asyncio.run(serve(folder, chromium))


if __name__ == "__main__":
    main()
