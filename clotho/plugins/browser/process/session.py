"""One rollout's browser context: its page, its calls, and its state between two of them."""

import asyncio
import json
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from playwright.async_api import (
    Browser,
    BrowserContext,
    ConsoleMessage,
    Dialog,
    Download,
    Error,
    Page,
    Request,
    ViewportSize,
)

from clotho.plugins.browser.launch import FIRST_PORT, PORTS
from clotho.plugins.browser.process import snapshots
from clotho.plugins.browser.process.policy import NetworkPolicy
from clotho.plugins.browser.process.proxy import FilteringProxy, Site

ACTION_SECONDS = 10.0
# pages that poll are never at rest
SETTLE_SECONDS = 5.0
QUIET_SECONDS = 0.05
KEPT_CALLS = 8
KEPT_MESSAGES = 100
MOST_MESSAGE_CHARS = 500
MOST_PAGES = 8
MOST_DOWNLOADS = 8
"""Files of one call; further ones are cancelled."""
# storage is journalled after each call that changes it
MOST_STORAGE_CHARS = 256_000
MOST_URL_CHARS = 8_000
VIEWPORT: ViewportSize = {"width": 1280, "height": 900}
BLANK = "about:blank"

Fields = dict[str, Any]
Result = TypeVar("Result")


class Ended(Exception):
    """The page or the browser ended during a call."""


class Session:
    """A rollout's browser context, and the proxy that is its pages' only way to the network."""

    def __init__(
        self, slot: int, folder: Path, rollout: str, settings: Mapping[str, Any], sites: Mapping[str, Site]
    ) -> None:
        self.rollout = rollout
        self.slot = slot
        self.seconds = float(settings["seconds"])
        self.lock = asyncio.Lock()
        self.calls: OrderedDict[str, asyncio.Task[Fields]] = OrderedDict()
        self.last: str | None = None
        """The call after which the context is as it is."""
        self.proxy = FilteringProxy(
            folder / PORTS / str(FIRST_PORT + slot), NetworkPolicy(settings["allow"]), sites
        )
        self.dialog: Dialog | None = None
        self.console: deque[Fields] = deque(maxlen=KEPT_MESSAGES)
        self.errors: deque[Fields] = deque(maxlen=KEPT_MESSAGES)
        self.downloads: list[Download] = []
        """Those that were begun, and that no call has told of."""
        self.downloads_bytes = int(settings.get("downloads_mb", 0) * (1 << 20))
        self.folder = folder
        self.attached: Fields = {}
        """What the answer of the current call has beside its result."""
        self._context: BrowserContext | None = None
        self._pages: list[Page] = []
        self._loading: set[Request] = set()
        self._changed = asyncio.Event()
        self._storage: Fields | None = None
        self._unfinished: asyncio.Task[Any] | None = None

    @property
    def page(self) -> Page:
        if self._context is None or not self._pages:
            raise Ended
        return self._pages[-1]

    @property
    def alive(self) -> bool:
        return self._context is not None and bool(self._pages)

    async def open(self, browser: Browser, storage: Fields | None, url: str | None) -> Error | None:
        """Begin anew with a storage state, at `url`; returns why that page didn't load."""
        await self.close_context()
        await self.proxy.start()
        self._context = await browser.new_context(
            # <-loopback>: Chromium asks no proxy for localhost, which here is its own network namespace
            proxy={"server": f"http://127.0.0.1:{FIRST_PORT + self.slot}", "bypass": "<-loopback>"},
            storage_state=storage,  # type: ignore[arg-type]
            accept_downloads=bool(self.downloads_bytes),
            # a service worker would answer from caches that the journalled state doesn't have
            service_workers="block",
            viewport=VIEWPORT,
        )
        self._storage = storage
        # before the first page is opened: `page` is found by these events
        self._context.on("page", self._opened)
        self._context.on("request", self._begun)
        self._context.on("requestfinished", self._over)
        self._context.on("requestfailed", self._over)
        await self._context.new_page()
        if url is None or url == BLANK:
            return None
        failure: Error | None = None
        try:
            going = self.page.goto(url, wait_until="domcontentloaded", timeout=self.seconds * 1000)
            await self.until_dialog(going)
        except Error as error:
            failure = error
        await self.settle()
        if self.dialog is None:
            await self.tree()  # the refs that the next call may name
        return failure

    async def close_context(self) -> None:
        context, self._context = self._context, None
        self._pages, self.dialog, self.downloads = [], None, []
        self._loading.clear()
        if self._unfinished is not None:
            self._unfinished.cancel()
            self._unfinished = None
        if context is not None:
            # a context may have gone with its browser, or its page may hang: the slot is needed either way
            with suppress(Error, TimeoutError):
                async with asyncio.timeout(ACTION_SECONDS):
                    await context.close()

    async def close(self) -> None:
        for call in self.calls.values():
            call.cancel()
        await self.close_context()
        await self.proxy.stop()

    async def once(self, key: str, work: Callable[[], Awaitable[Fields]]) -> Fields:
        """Make a call once, however often it is asked for; returns its answer."""
        if key not in self.calls:
            # the rollout's next call has come: its worker has the files, or asks for them no more
            for earlier in self.calls.values():
                if earlier.done() and not earlier.cancelled() and earlier.exception() is None:
                    earlier.result().pop("attached", None)
            self.calls[key] = asyncio.ensure_future(work())
            while len(self.calls) > KEPT_CALLS:
                self.calls.popitem(last=False)
        try:
            return await asyncio.shield(self.calls[key])
        except Exception:
            # it has no answer, as where no browser could be started: the next attempt tries again
            self.calls.pop(key, None)
            raise

    async def until_dialog(self, action: Awaitable[Result]) -> Result | None:
        """Wait for an action; None where a dialog holds it up, whose answer then finishes it.

        Raises Ended where the page goes meanwhile.
        """
        task = asyncio.ensure_future(action)
        while True:
            # no await lies between the looks below and this: no change is missed
            self._changed.clear()
            changed = asyncio.ensure_future(self._changed.wait())
            await asyncio.wait({task, changed}, return_when=asyncio.FIRST_COMPLETED)
            changed.cancel()
            if task.done():
                try:
                    return task.result()
                except Error:
                    if not self.alive:
                        raise Ended from None
                    raise
            # Playwright's action returns when the dialog is closed, and only the model's next call closes it
            if self.dialog is not None:
                self._unfinished = task
                return None
            if not self.alive:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
                raise Ended

    async def finish(self) -> None:
        """Wait for the action that a dialog has held up."""
        unfinished, self._unfinished = self._unfinished, None
        if unfinished is not None:
            with suppress(Error):
                await self.until_dialog(unfinished)

    async def settle(self) -> None:
        """Wait until the page loads nothing for a moment, but not for long."""
        with suppress(TimeoutError):
            async with asyncio.timeout(SETTLE_SECONDS):
                quiet = 0
                # two looks: scripts begin a request some time after they were given an answer
                while quiet < 2 and self.dialog is None and self.alive:
                    await asyncio.sleep(QUIET_SECONDS)
                    quiet = 0 if self._loading else quiet + 1

    async def until_download(self) -> None:
        """Wait for a download that was announced to begin, but not for long."""
        with suppress(TimeoutError):
            async with asyncio.timeout(SETTLE_SECONDS):
                while not self.downloads and self.alive:
                    self._changed.clear()
                    await self._changed.wait()

    async def tree(self) -> str:
        """Take the page's accessibility tree, whose refs replace those of the tree before."""
        tree = await self.until_dialog(self.page.aria_snapshot(mode="ai", timeout=ACTION_SECONDS * 1000))
        return tree or ""

    @property
    def asked(self) -> Fields | None:
        """The dialog that waits for its answer."""
        return described(self.dialog) if self.dialog is not None else None

    async def snapshot(self, full: bool = False) -> Fields:
        """The fields that show the page as it is."""
        if self.dialog is not None:
            return {"pending_dialog": described(self.dialog)}
        tree = snapshots.shown(await self.tree(), full)
        if self.dialog is not None:
            return {"pending_dialog": described(self.dialog)}
        return {"snapshot": tree, "element_count": snapshots.elements(tree)}

    async def place(self) -> Fields:
        """URL and title of the page."""
        title = "" if self.dialog is not None else await self.until_dialog(self.page.title())
        return {"url": self.page.url[:MOST_URL_CHARS], "title": (title or "")[:MOST_MESSAGE_CHARS]}

    async def saved(self) -> Fields:
        """The state to open the context again from; it has the storage if that has changed and can be read.

        Raises Ended where no page is open.
        """
        url = self.page.url
        # history.pushState takes URLs of any length, and the journal doesn't
        state: Fields = {"url": url if len(url) <= MOST_URL_CHARS else BLANK, "last": self.last}
        if self.dialog is not None:
            return state  # the page answers nothing until the dialog is answered
        assert self._context is not None
        try:
            storage: Any = await self.until_dialog(self._context.storage_state())
        except Error:
            return state  # the page is as it was: the next call goes on with it
        if (
            storage is not None
            and storage != self._storage
            and len(json.dumps(storage)) <= MOST_STORAGE_CHARS
        ):
            self._storage = storage
            state["storage"] = storage
        return state

    def _opened(self, page: Page) -> None:
        self._pages.append(page)
        page.on("close", self._closed)
        page.on("crash", self._closed)
        page.on("dialog", self._asked)
        page.on("console", self._said)
        page.on("pageerror", self._failed)
        page.on("download", self._downloading)
        if len(self._pages) > MOST_PAGES:
            asyncio.ensure_future(_closing(self._pages[0]))  # noqa: RUF006

    def _closed(self, page: Page) -> None:
        if page in self._pages:
            self._pages.remove(page)
        # requests of a page that is gone may get no event of their end: `settle` would wait for them
        self._loading.clear()
        self._changed.set()

    def lost(self) -> None:
        """The browser has ended."""
        self._context, self._pages, self.dialog, self.downloads = None, [], None, []
        self._changed.set()

    def _begun(self, request: Request) -> None:
        self._loading.add(request)

    def _over(self, request: Request) -> None:
        self._loading.discard(request)

    async def _asked(self, dialog: Dialog) -> None:
        # a page that asks whether to leave it would hold up every navigation
        if dialog.type == "beforeunload":
            with suppress(Error):
                await dialog.accept()
            return
        self.dialog = dialog
        self._changed.set()

    def _said(self, message: ConsoleMessage) -> None:
        self.console.append({"type": message.type, "text": message.text[:MOST_MESSAGE_CHARS]})

    def _failed(self, error: Error) -> None:
        self.errors.append({"message": str(error)[:MOST_MESSAGE_CHARS]})

    def _downloading(self, download: Download) -> None:
        if len(self.downloads) < MOST_DOWNLOADS:
            self.downloads.append(download)
            self._changed.set()
        else:
            asyncio.ensure_future(_cancelled(download))  # noqa: RUF006


async def _cancelled(download: Download) -> None:
    with suppress(Error):
        await download.cancel()


async def _closing(page: Page) -> None:
    with suppress(Error):
        await page.close()


def described(dialog: Dialog) -> Fields:
    fields = {"type": dialog.type, "message": dialog.message[:MOST_MESSAGE_CHARS]}
    if dialog.type == "prompt":
        fields["default_value"] = dialog.default_value[:MOST_MESSAGE_CHARS]
    return fields
