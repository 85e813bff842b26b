"""Searching the texts of a run's rollouts, some seconds at a time."""

import asyncio
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from pydantic import JsonValue

from clotho.errors import JournalCorrupt
from clotho.journal.store import Store
from clotho.plugins.viewer.raw import rollout_entries

SECONDS = 3.0
"""After which a search shows what it has, and where it goes on."""
AT_ONCE = 16
"""Rollouts that are read at once."""
MOST_FOUND = 50
AROUND = 120
"""Characters shown before and after what was found."""
SEARCHED = ("/turn/", "/call/", "/prompt", "/reward")
NOT_TEXT = {"prompt_ids", "ids", "logprobs", "workspace_files"}


@dataclass(frozen=True)
class Found:
    """A text in which it was found."""

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
    written = json.dumps(text.lower(), ensure_ascii=False)[1:-1]
    # Arguments of calls are JSON within JSON: their quotes and line breaks are escaped once more.
    twice = json.dumps(written, ensure_ascii=False)[1:-1]
    if not any(form in body.lower() for form in {written, twice}):
        return None
    try:
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
