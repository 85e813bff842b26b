"""Write-ahead of a turn's tokens: an interrupted turn is continued instead of sampled anew.

Sampling unfinished turns anew favours short ones. A killed process loses only what it had not written yet.
"""

import asyncio
import logging
import time
from dataclasses import dataclass

from clotho.errors import ModelUnavailable, StoreUnavailable
from clotho.identifiers.keys import stream_prefix
from clotho.journal import Journal
from clotho.models.partial_turn import PartialTurn, StreamEntry

log = logging.getLogger("clotho")


@dataclass(frozen=True)
class FlushPolicy:
    """An entry is due after so many tokens, or so many seconds with any."""

    tokens: int = 256
    seconds: float = 2.0


class WriteAhead:
    """The write-ahead of one turn: entries are written one at a time, and the stream doesn't wait."""

    def __init__(self, journal: Journal, key: str, flush_policy: FlushPolicy) -> None:
        self._journal = journal
        self._prefix = stream_prefix(key)
        self._flush_policy = flush_policy
        self._number = self._written = 0
        self._last = time.monotonic()
        self._writing: asyncio.Task[None] | None = None

    async def read(self) -> list[StreamEntry]:
        """Read the entries of earlier attempts, in order; further ones are appended."""
        keys = await self._journal.keys(self._prefix)
        entries = [entry for entry in await self._journal.read_many(keys, StreamEntry) if entry is not None]
        self._number = len(entries)
        self._written = sum(len(entry.ids) for entry in entries)
        return entries

    def offer(self, turn: PartialTurn) -> None:
        """Start writing new tokens if an entry is due. Raises ModelUnavailable if another attempt goes on."""
        if self._writing is not None:
            if not self._writing.done():
                return
            # raises here, in the stream, what the write raised in its task
            writing, self._writing = self._writing, None
            writing.result()
        new = len(turn.ids) - self._written
        if new >= self._flush_policy.tokens or (
            new and time.monotonic() - self._last >= self._flush_policy.seconds
        ):
            self._writing = asyncio.create_task(self._write(turn.entry(self._written)))

    async def flush(self, turn: PartialTurn) -> None:
        """Write all new tokens, after the stream broke off."""
        await self.settle()
        if len(turn.ids) > self._written:
            await self._write(turn.entry(self._written))

    async def settle(self) -> None:
        """Wait for the entry being written, whatever its result."""
        if self._writing is not None:
            await asyncio.wait([self._writing])

    async def _write(self, entry: StreamEntry) -> None:
        self._last = time.monotonic()
        try:
            found = await self._journal.write(f"{self._prefix}{self._number:06}", entry)
        except StoreUnavailable as error:
            # the stream is paid for, and goes on: the next entry has these tokens, too
            log.warning("write-ahead %s: %s", self._prefix, error)
            return
        # shorter is no contradiction: an earlier write, whose answer was lost, may have had fewer of the tokens
        if found.offset != entry.offset or found.ids != entry.ids[: len(found.ids)]:
            raise ModelUnavailable("another attempt goes on with this turn")
        self._number += 1
        self._written = found.offset + len(found.ids)
