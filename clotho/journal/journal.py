"""Write-once entries at computed keys: the key is the idempotency key and the address.

This is how a paid call is found again: an activity computes its key from run, rollout and turn, and does its work
within `Journal.once` or `once_from`. A later attempt, in any process, finds the entry at the key, or joins the call
while it is in flight in the same process. `TurnSampler` (`activities/sampling.py`) does so for turns, whose
workflow stays with one process for that reason (`workflows/model_process.py`). An answer is paid for twice only if
the process is killed that waits for it; in token mode, only its last seconds are (`clotho/models/write_ahead.py`).
"""

import asyncio
import hashlib
import json
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, TypeVar, cast

import zstandard
from pydantic import BaseModel, ValidationError

from clotho import failpoints
from clotho.errors import JournalCorrupt
from clotho.identifiers.keys import answers_prefix, blob_key, sealed_key, streams_prefix
from clotho.journal.numbered_log import NumberedLog
from clotho.journal.store import Store, Written

SCHEMA = 1
CACHE_BYTES = 256 << 20
"""Memory that entries are kept in, so that a rollout's next turn need not read the earlier ones again."""
BYTES_PER_JSON_BYTE = 5
BYTES_PER_ENTRY = 500
"""An entry in memory takes two times its JSON (tokens) to six times (small ones), and its place in the cache."""

Entry = TypeVar("Entry", bound=BaseModel)
Inputs = TypeVar("Inputs")


class Journal:
    """The entries of a store, each written once; one journal per event loop.

    A rollout's entries (`{rollout}/…`) move into one compressed object when it is sealed; readers don't
    notice. Raises StoreUnavailable, and JournalCorrupt for an entry that is damaged or of another kind.
    """

    def __init__(
        self,
        store: Store,
        on_repaid: Callable[[str], None] = lambda key: None,
        cache_bytes: int = CACHE_BYTES,
    ) -> None:
        """`on_repaid` is told the key of work that another process turns out to have done, with another result."""
        self._store = store
        self._on_repaid = on_repaid
        self._flights: dict[str, asyncio.Task[BaseModel]] = {}
        self._unwritten: dict[str, BaseModel] = {}
        self._last_numbers: dict[str, int] = {}
        self._cache: OrderedDict[str, tuple[BaseModel, int]] = OrderedDict()
        self._cache_bytes = cache_bytes
        self._cached_bytes = 0

    @property
    def store_identity(self) -> str:
        return self._store.identity

    async def once(self, key: str, kind: type[Entry], work: Callable[[], Awaitable[Entry]]) -> Entry:
        """Return the entry at `key`; do `work` and write what it returns first if there is none.

        Runs once at a time for a key, detached from the caller: an attempt that Temporal gives up on
        doesn't kill a paid call, and the next attempt joins it or finds its entry.
        """
        return await self.once_from(key, kind, _nothing, lambda _: work())

    async def once_from(
        self,
        key: str,
        kind: type[Entry],
        read: Callable[[], Awaitable[Inputs]],
        work: Callable[[Inputs], Awaitable[Entry]],
        after: Callable[[Entry], Awaitable[None]] | None = None,
    ) -> Entry:
        """Like `once`, but fetches the inputs concurrently with the look-up: one wait for the store instead of two.

        An exception of `read` is raised only if there is no entry. `after` runs with the written entry, as detached
        from the caller as `work`, and again for each later caller. Nothing is awaited between looking for a flight
        and starting one: the look-up is the flight's own first step.
        """

        async def fly() -> Entry:
            entry = await self._run_once(key, kind, read, work)
            if after is not None:
                await after(entry)
            return entry

        if (flight := self._flights.get(key)) is None:
            flight = self._flights[key] = asyncio.create_task(fly(), name=key)
            flight.add_done_callback(lambda _: self._flights.pop(key, None))
        return cast(Entry, await asyncio.shield(flight))

    def cancel_flight(self, key: str) -> None:
        """Stop the flight for `key`, if one is under way: for a genuine cancel request only."""
        # or `drain` would write the result of a step that was cancelled
        self._unwritten.pop(key, None)
        if (flight := self._flights.get(key)) is not None:
            flight.cancel()

    async def drain(self, seconds: float) -> None:
        """Wait so long for all flights, and try once more to write the entries that couldn't be written."""
        if self._flights:
            await asyncio.wait(self._flights.values(), timeout=seconds)
        unwritten = (self.write(key, entry) for key, entry in self._unwritten.items())
        await asyncio.gather(*unwritten, return_exceptions=True)

    async def write(self, key: str, entry: Entry) -> Entry:
        """Write `entry`, or return the one that was there first."""
        await failpoints.reach("journal.write", key)
        if await self._store.create(key, body := encode(key, entry)):
            self._remember(key, entry, len(body))
            return entry
        winner = await self.read(key, type(entry))
        if winner is None:
            raise JournalCorrupt(f"journal entry {key} was refused as taken and can't be read")
        return winner

    async def read(self, key: str, kind: type[Entry]) -> Entry | None:
        """The entry at `key`, from the sealed rollout if it was sealed; None if there is none."""
        return (await self.read_many([key], kind))[0]

    async def read_current(self, key: str, kind: type[Entry]) -> Entry | None:
        """The entry as the store has it now, past the cache: for an entry that may still be replaced."""
        (body,) = await self._store.read_many([key])
        return None if body is None else decode(key, body, kind)

    async def read_required(self, key: str, kind: type[Entry]) -> Entry:
        """The entry at `key`, which an earlier step has written; raises JournalCorrupt if it is gone."""
        # twice: the rollout may be sealed between the looks at the seal and at the key, which is deleted then
        for _ in range(2):
            if (entry := await self.read(key, kind)) is not None:
                return entry
        raise JournalCorrupt(f"journal entry {key} is missing")

    async def read_many(self, keys: Sequence[str], kind: type[Entry]) -> list[Entry | None]:
        """The entries at `keys`, in their order, read in parallel."""
        # Taken out of the cache at once: what comes in meanwhile may push it out.
        found: dict[str, BaseModel] = {key: self._recall(key) for key in keys if key in self._cache}
        missing = [key for key in keys if key not in found]
        if missing:
            seals = sorted({seal for key in missing if (seal := _seal_of(key))})
            # seals last: sealing writes the seal before it deletes the keys
            bodies = await self._store.read_many([*missing, *seals])
            sealed = _unsealed(zip(seals, bodies[len(missing) :], strict=True))
            for key, loose in zip(missing, bodies, strict=False):
                # a late writer may have created the key anew after it was sealed: the sealed entry came first
                body = sealed.get(key, loose)
                if body is not None:
                    found[key] = decode(key, body, kind)
                    self._remember(key, found[key], len(body))
        return [_of_kind(kind, key, found[key]) if key in found else None for key in keys]

    async def latest(self, prefix: str, kind: type[Entry]) -> Entry | None:
        """The last entry of the numbered log under `prefix`."""
        numbered = await self.latest_numbered(prefix, kind)
        return None if numbered is None else numbered[1]

    async def latest_numbered(self, prefix: str, kind: type[Entry]) -> tuple[int, Entry] | None:
        """The last entry of the numbered log under `prefix`, with its number."""
        log = NumberedLog(self._store, prefix)
        while (last := await log.last()) is not None:
            if (entry := await self.read(log.key(last), kind)) is not None:
                return last, entry  # else others have appended since, and deleted it
        return None

    async def last_number(self, prefix: str) -> int | None:
        """The last number of the log under `prefix`, which keeps all its entries; it is listed once at most."""
        log = NumberedLog(self._store, prefix)
        known = self._last_numbers.get(prefix)
        found = await log.last() if known is None else await log.last_from(known)
        if found is not None:
            self._last_numbers[prefix] = found
        return found

    async def read_numbered(self, prefix: str, numbers: Iterable[int], kind: type[Entry]) -> list[Entry]:
        """Entries of the numbered log under `prefix`, of which none may be missing."""
        keys = [NumberedLog(self._store, prefix).key(number) for number in numbers]
        found: list[Entry] = []
        for key, entry in zip(keys, await self.read_many(keys, kind), strict=True):
            if entry is None:
                raise JournalCorrupt(f"journal entry {key} is missing")
            found.append(entry)
        return found

    async def append(self, prefix: str, entry: BaseModel, kept: int | None = None) -> int:
        """Write `entry` as the next of the numbered log under `prefix`; returns its number.

        With `kept`, all but that many last entries are deleted.
        """
        return await NumberedLog(self._store, prefix, kept).append(lambda key: encode(key, entry))

    async def append_after(
        self, prefix: str, last: int | None, entry: BaseModel, kept: int | None = None
    ) -> int | None:
        """Like `append`, if number `last` is still the last; None if it isn't."""
        return await NumberedLog(self._store, prefix, kept).append_after(last, lambda key: encode(key, entry))

    async def keys(self, prefix: str) -> list[str]:
        return await self._store.keys(prefix)

    async def written(self, prefix: str) -> Written:
        """When the keys under `prefix` were created, by the store's clock."""
        return await self._store.written(prefix)

    async def write_bytes(self, key: str, content: bytes) -> None:
        """Keep bytes that are no entry, at a key that depends on them."""
        await self._store.create(key, content)

    async def read_bytes(self, key: str) -> bytes | None:
        return (await self._store.read_many([key]))[0]

    async def write_blob(self, rollout: str, digest: str, blob: bytes) -> None:
        """Keep a checkpoint of the rollout until it is sealed."""
        await self.write_bytes(blob_key(rollout, digest), blob)

    async def read_blob(self, rollout: str, digest: str) -> bytes | None:
        return await self.read_bytes(blob_key(rollout, digest))

    async def delete_blob(self, rollout: str, digest: str) -> None:
        await self._store.delete([blob_key(rollout, digest)])

    async def delete(self, keys: Sequence[str]) -> None:
        """Delete entries that are no longer needed."""
        await self._store.delete(keys)
        for key in keys:
            _, size = self._cache.pop(key, (None, 0))
            self._cached_bytes -= size

    async def seal(self, rollout: str) -> None:
        """Move the rollout's entries into one compressed object; delete them once it is written.

        Checkpoints, write-aheads and verifiers' calls are deleted too: nothing is restored or resumed any more.
        """
        found = [key for key in await self._store.keys(f"{rollout}/") if key != sealed_key(rollout)]
        passing = _passing(rollout, found)
        keys = [key for key in found if key not in set(passing)]
        if not keys:
            return await self._store.delete(passing)
        bodies = dict(zip(keys, await self._store.read_many(keys), strict=True))
        record = {key: body.decode() for key, body in bodies.items() if body is not None}
        sealed = await asyncio.to_thread(lambda: zstandard.compress(json.dumps(record).encode(), 3))
        # written before the entries are deleted: at any moment, the seal or the key has each entry
        if await self._store.create(sealed_key(rollout), sealed):
            return await self._store.delete([*keys, *passing])
        # another process has sealed it, perhaps without the last entries: only those that it has may go
        await self._store.delete(await self.superseded(rollout, found))

    async def superseded(self, rollout: str, keys: Sequence[str]) -> list[str]:
        """The `keys` that a sealed rollout no longer needs: sealed entries, checkpoints, write-aheads."""
        key = sealed_key(rollout)
        sealed = _unsealed([(key, (await self._store.read_many([key]))[0])])
        passing = set(_passing(rollout, keys))
        return [each for each in keys if each in sealed or each in passing]

    async def _run_once(
        self,
        key: str,
        kind: type[Entry],
        read: Callable[[], Awaitable[Inputs]],
        work: Callable[[Inputs], Awaitable[Entry]],
    ) -> Entry:
        reading = asyncio.ensure_future(read())
        try:
            if (entry := await self.read(key, kind)) is not None:
                self._unwritten.pop(key, None)
                return entry
            # Kept until it is written: a store that is full or away must not have paid work done again.
            if key not in self._unwritten:
                self._unwritten[key] = await work(await reading)
        except Exception:
            # A process that was frozen, and didn't know that its task had gone on here, may have done the work
            # meanwhile, and what comes after it: the sandbox that this attempt needed can be gone by then.
            if (entry := await self.read(key, kind)) is None:
                raise
            return entry
        finally:
            # awaited too: asyncio logs the exception of a task that nobody has looked at
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)
        mine = cast(Entry, self._unwritten[key])
        written = await self.write(key, mine)
        del self._unwritten[key]
        if written is not mine and written != mine:
            self._on_repaid(key)
        return written

    def _remember(self, key: str, entry: BaseModel, json_bytes: int) -> None:
        if key in self._cache:
            return
        size = BYTES_PER_ENTRY + BYTES_PER_JSON_BYTE * json_bytes
        self._cache[key] = (entry, size)
        self._cached_bytes += size
        while self._cached_bytes > self._cache_bytes and len(self._cache) > 1:
            self._cached_bytes -= self._cache.popitem(last=False)[1][1]

    def _recall(self, key: str) -> BaseModel:
        self._cache.move_to_end(key)
        return self._cache[key][0]


def _of_kind(kind: type[Entry], key: str, entry: BaseModel) -> Entry:
    if not isinstance(entry, kind):
        raise JournalCorrupt(f"journal entry {key} is a {type(entry).__name__}, not a {kind.__name__}")
    return entry


async def _nothing() -> None:
    """Read no inputs: for work that needs nothing from the store."""


def encode(key: str, entry: BaseModel) -> bytes:
    """One header line (schema, kind, key, checksum of the rest), then the entry as JSON."""
    body = entry.model_dump_json().encode()
    header = {"clotho": SCHEMA, "kind": type(entry).__name__, "key": key, "sha256": _checksum(body)}
    return json.dumps(header).encode() + b"\n" + body + b"\n"


def decode(key: str, blob: bytes, kind: type[Entry]) -> Entry:
    """The entry in `blob`; raises JournalCorrupt naming `key` for anything that isn't exactly it."""
    head, _, rest = blob.partition(b"\n")
    body = rest.removesuffix(b"\n")
    try:
        header: dict[str, Any] = json.loads(head)
        found = (header["clotho"], header["kind"], header["key"], header["sha256"])
    except (ValueError, KeyError, TypeError) as error:
        raise JournalCorrupt(f"journal entry {key} has no readable header") from error
    expected = (SCHEMA, kind.__name__, key, _checksum(body))
    for name, seen, wanted in zip(("schema", "kind", "key", "checksum"), found, expected, strict=True):
        if seen != wanted:
            raise JournalCorrupt(f"journal entry {key}: {name} is {seen!r}, expected {wanted!r}")
    try:
        return kind.model_validate_json(body)
    except ValidationError as error:
        raise JournalCorrupt(f"journal entry {key} doesn't fit {kind.__name__}: {error}") from error


def _checksum(body: bytes) -> str:
    # against damage, not forgery: whoever writes entries can write their checksums
    return hashlib.sha256(body).hexdigest()[:16]


def _seal_of(key: str) -> str | None:
    """The sealed object that may hold `key`: that of its rollout (run/group/rollout/…)."""
    parts = key.split("/")
    return sealed_key("/".join(parts[:3])) if len(parts) > 3 else None


def _passing(rollout: str, keys: Iterable[str]) -> list[str]:
    """The checkpoints, write-aheads and verifiers' calls among `keys`: of no use once the rollout has ended."""
    passing = (blob_key(rollout, ""), streams_prefix(rollout), answers_prefix(rollout))
    return [key for key in keys if key.startswith(passing)]


def _unsealed(seals: Iterable[tuple[str, bytes | None]]) -> dict[str, bytes]:
    entries: dict[str, bytes] = {}
    for key, blob in seals:
        if blob is None:
            continue
        try:
            record = json.loads(zstandard.decompress(blob))
        except (ValueError, zstandard.ZstdError) as error:
            raise JournalCorrupt(f"sealed rollout {key} is damaged: {error}") from error
        entries |= {name: text.encode() for name, text in record.items()}
    return entries
