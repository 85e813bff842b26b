"""Entries as the store has them, whether their kind is known or not: for search, and for damaged ones."""

import asyncio
import json

import zstandard

from clotho.errors import JournalCorrupt
from clotho.identifiers.rollout_keys import sealed_key
from clotho.journal.store import Store

ENTRY_DEPTH = 3
"""Slashes in the key of a rollout's entry, at least."""


async def raw_entry(store: Store, key: str) -> str | None:
    """The entry at `key` as text, also of a sealed rollout. Raises InvalidInput for what is no key."""
    if key.count("/") >= ENTRY_DEPTH:
        entries = await rollout_entries(store, "/".join(key.split("/")[:ENTRY_DEPTH]), sealed_only=True)
        if key in entries:
            return entries[key]
    (body,) = await store.read_many([key])
    return None if body is None else body.decode(errors="replace")


async def rollout_entries(store: Store, rollout: str, *, sealed_only: bool = False) -> dict[str, str]:
    """Every entry of a rollout, by its key; bodies of checkpoints and write-aheads are left out."""
    (sealed,) = await store.read_many([sealed_key(rollout)])
    if sealed is not None:
        return await asyncio.to_thread(_unsealed, rollout, sealed)
    if sealed_only:
        return {}
    left_out = (f"{rollout}/checkpoint/", f"{rollout}/stream/")
    keys = [key for key in await store.keys(f"{rollout}/") if not key.startswith(left_out)]
    bodies = await store.read_many(keys)
    return {
        key: body.decode(errors="replace") for key, body in zip(keys, bodies, strict=True) if body is not None
    }


def _unsealed(rollout: str, sealed: bytes) -> dict[str, str]:
    try:
        entries: dict[str, str] = json.loads(zstandard.decompress(sealed))
    except (ValueError, zstandard.ZstdError) as error:
        raise JournalCorrupt(f"sealed rollout {rollout} is damaged: {error}") from error
    return entries
