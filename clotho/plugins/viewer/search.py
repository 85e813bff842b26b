"""Texts of a run's rollouts as the store has them, and a search through them, some seconds at a time."""

import asyncio
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import zstandard
from pydantic import JsonValue

from clotho.errors import JournalCorrupt
from clotho.identifiers.keys import sealed_key
from clotho.journal.store import Store

ENTRY_DEPTH = 3
"""Slashes in the key of a rollout's entry, at least."""
SECONDS = 3.0
"""After which a search shows what it has, and where it goes on."""
AT_ONCE = 16
"""Rollouts that are read at once."""
MOST_FOUND = 50
AROUND = 120
"""Characters shown before and after what was found."""
SEARCHED = ("/turn/", "/call/", "/asked/", "/agent/", "/prompt", "/reward")
NOT_TEXT = {"prompt_ids", "ids", "logprobs", "workspace_files"}


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


@dataclass(frozen=True)
class Found:
    """A place where the text was found."""

    rollout: str
    where: str
    """The entry, within the rollout."""
    before: str
    text: str
    after: str


@dataclass(frozen=True)
class Findings:
    found: Sequence[Found]
    searched: int
    """Rollouts searched so far, those of earlier pages included."""
    next: int | None
    """Number of the rollout to go on with; None at the end."""


async def search(store: Store, rollouts: Sequence[str], text: str, first: int = 0) -> Findings:
    """Look for `text`, in any case of letters, in `rollouts` from number `first`; one result for each entry."""
    deadline, found = time.monotonic() + SECONDS, list[Found]()
    for number in range(first, len(rollouts), AT_ONCE):
        if len(found) >= MOST_FOUND or time.monotonic() > deadline:
            return Findings(found, number, number)
        part = rollouts[number : number + AT_ONCE]
        for each in await asyncio.gather(*(_searched(store, rollout, text) for rollout in part)):
            found += each
    return Findings(found, len(rollouts), None)


async def _searched(store: Store, rollout: str, text: str) -> list[Found]:
    try:
        entries = await rollout_entries(store, rollout)
    except JournalCorrupt:
        return []  # the rollout's page says so
    return await asyncio.to_thread(_among, rollout, entries, text)


def _among(rollout: str, entries: Mapping[str, str], text: str) -> list[Found]:
    found = []
    for key, body in entries.items():
        where = key.removeprefix(f"{rollout}/")
        if f"/{where}".startswith(SEARCHED) and (one := found_in(body, text)) is not None:
            found.append(Found(rollout, where, *one))
    return found


def found_in(body: str, text: str) -> tuple[str, str, str] | None:
    """The first place of `text` in an entry: what is before it, itself, and what is after it."""
    # the raw entry is looked through first: most don't have the text, and needn't be parsed
    written = json.dumps(text.lower(), ensure_ascii=False)[1:-1]
    # Arguments of calls are JSON within JSON: their quotes and line breaks are escaped once more.
    twice = json.dumps(written, ensure_ascii=False)[1:-1]
    if not any(form in body.lower() for form in {written, twice}):
        return None
    try:
        # an entry's first line is its header
        value = json.loads(body.partition("\n")[2])
    except (ValueError, RecursionError):
        return None
    for piece in texts_in(value):
        for form in (text.lower(), written):
            at = piece.lower().find(form)
            if at >= 0:
                end = at + len(form)
                return piece[max(0, at - AROUND) : at], piece[at:end], piece[end : end + AROUND]
    return None


def texts_in(value: JsonValue) -> Iterator[str]:
    """Every text in an entry, but for tokens and files."""
    left: list[JsonValue] = [value]
    while left:
        match left.pop():
            case str() as text:
                yield text
            case dict() as fields:
                left += [inner for name, inner in reversed(fields.items()) if name not in NOT_TEXT]
            case list() as values:
                left += reversed(values)
