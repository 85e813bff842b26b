"""Pages in the store with which model processes tell each other what they ask of a model server.

A process keeps one page for each server, at a key with the time of its writing, and replaces it every few seconds.
It reads first, so that its page has what it makes of the others': one listing, one read for each page that changed,
one write and one deletion.
"""

import asyncio
import hashlib
import time
from dataclasses import dataclass

from clotho.errors import JournalCorrupt
from clotho.frozen_model import FrozenModel
from clotho.journal import Journal
from clotho.models.endpoint import Endpoint
from clotho.models.speed import Speed
from clotho.models.width import Width

LEASE_SECONDS = 10.0
"""Time without a new page after which a process counts as killed."""
OLD_SECONDS = 60.0
"""Age, by this host's clock, of a page whose process is gone. Clocks may differ by a part of it."""
KEPT_SECONDS = 3600.0
"""Age from which a page is deleted."""
SHOWN_SECONDS = 30.0
PAGES = "~pace/"


class ServerPage(FrozenModel):
    """One process's requests to one server, and the width that it knows of."""

    width: Width
    in_use: int
    """Requests that the server is answering."""
    waiting: int
    speed: Speed
    down: bool


@dataclass
class SeenPage:
    """The last page of another process."""

    key: str
    page: ServerPage
    changed: float
    """When it was found changed, by this process's clock."""


class PacePages:
    """The pages of one server, as the process named `process` writes and reads them."""

    def __init__(self, journal: Journal, server: Endpoint, process: str) -> None:
        self._journal = journal
        self._prefix = _prefix(server)
        self._process = process
        self._seen: dict[str, SeenPage] = {}
        self._outdated: list[str] = []
        self._began = False
        self.width = Width()
        """The width with the most changes that any page had."""

    async def read(self, now: float) -> None:
        """Read the pages of others that have changed, and at first this process's own. Raises StoreUnavailable."""
        keys = sorted(await self._journal.keys(self._prefix))
        own = [key for key in keys if self._writer(key) == self._process]
        expired = [key for key in keys if _age(key) > KEPT_SECONDS]
        # deleted once the next page is written: others never find this process without one
        self._outdated = [*own, *expired]
        last = {self._writer(key): key for key in keys if key not in own and key not in expired}
        unread = [key for name, key in last.items() if name not in self._seen or self._seen[name].key != key]
        if not self._began:
            # an earlier process of this name may have known the newest width; its counts are ignored, see `_see`
            unread += own[-1:]
        pages = await asyncio.gather(*(_read_page(self._journal, key) for key in unread))
        for key, read in zip(unread, pages, strict=True):
            if read is not None:
                self.width = max(self.width, read.width, key=lambda width: width.changes)
                self._see(key, read, now)
        self._began = True

    async def write(self, page: ServerPage) -> None:
        """Replace this process's page. Raises StoreUnavailable."""
        await self._journal.write(f"{self._prefix}{self._process}/{int(time.time() * 1e6):018}", page)
        await self._journal.delete(self._outdated)
        self._outdated = []

    def alive(self, now: float) -> dict[str, ServerPage]:
        """The pages of other processes that live, by their names."""
        return {name: seen.page for name, seen in self._seen.items() if now - seen.changed < LEASE_SECONDS}

    def _writer(self, key: str) -> str:
        return key.removeprefix(self._prefix).partition("/")[0]

    def _see(self, key: str, page: ServerPage, now: float) -> None:
        if (name := self._writer(key)) == self._process:
            return
        earlier = self._seen.get(name)
        # when a page that is new here was last changed is told by its key alone; later, by finding another key
        gone = earlier is None and _age(key) > OLD_SECONDS
        self._seen[name] = SeenPage(key, page, now - LEASE_SECONDS if gone else now)


async def shown_pages(journal: Journal, server: Endpoint) -> list[ServerPage]:
    """The pages of a server that were written in the last seconds."""
    keys = [key for key in await journal.keys(_prefix(server)) if _age(key) < SHOWN_SECONDS]
    last = {key.rpartition("/")[0]: key for key in sorted(keys)}
    read = await asyncio.gather(*(_read_page(journal, key) for key in last.values()))
    return [page for page in read if page is not None]


async def _read_page(journal: Journal, key: str) -> ServerPage | None:
    """A page; None for one that was replaced meanwhile, is damaged, or is of another version of the code."""
    try:
        return await journal.read_current(key, ServerPage)
    except JournalCorrupt:
        return None


def _prefix(server: Endpoint) -> str:
    name = repr((server.base_url, server.api_key_variable))
    return f"{PAGES}{hashlib.sha256(name.encode()).hexdigest()[:16]}/"


def _age(key: str) -> float:
    """Seconds since the page was written, by two hosts' clocks."""
    return time.time() - int(key.rpartition("/")[2]) / 1e6
