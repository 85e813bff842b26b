"""Requests that go to a relay together, and what their answers mean."""

import asyncio
import errno
import os
import secrets
import struct
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from clotho.errors import SandboxLost, SandboxUnavailable
from clotho.plugins.containers.relay import fields
from clotho.plugins.containers.relay.stream import MOST_DATA, RelayStream, StreamEnded
from clotho.sandbox.supervised.files import NO_FILE, NOT_THERE, SMALL_BYTES, damaged

FAILED = 1 << 31
Full = Callable[[], Exception]
"""What a full disk is, by who can have filled it."""
Asked = Coroutine[Any, Any, bytes]
Looked = tuple[str | None, list[bytes | int]]
"""The incarnation that lives, and what files hold; an errno for one that can't be read."""


async def look(stream: RelayStream, awaited: Sequence[str], along: Sequence[str]) -> Looked:
    number, answer = stream.begin()
    try:
        await stream.send(number, "V", bytes((len(awaited),)) + fields.path(*awaited, *along))
        found = await (answer if awaited else stream.answered(answer))
    except asyncio.CancelledError:
        if awaited and stream.is_open:  # nobody waits for its answer
            # an error would take the place of the cancel, and the caller would go on
            with suppress(StreamEnded):
                await stream.send(stream.draw(), "K", fields.number(number))
        raise
    parts = _parts(found)
    if len(parts) != 1 + len(along):
        raise SandboxUnavailable("a damaged answer of a relay")
    alive = parts[0]
    return (alive.decode(errors="replace").strip() or None) if isinstance(alive, bytes) else None, parts[1:]


def _parts(found: bytes) -> list[bytes | int]:
    parts: list[bytes | int] = []
    at = 0
    while at + 4 <= len(found):
        (head,) = struct.unpack_from(">I", found, at)
        at += 4
        if head & FAILED:
            parts.append(head & ~FAILED)
        else:
            parts.append(found[at : at + head])
            at += head
    return parts


def text_of(path: str, content: bytes | int) -> str | None:
    """Raises SandboxLost for what is no file."""
    if isinstance(content, bytes):
        return content[:SMALL_BYTES].decode(errors="replace")
    if content == errno.ENOENT:
        return None
    if content in NO_FILE:
        raise damaged(path)
    raise OSError(content, os.strerror(content))


async def exists(stream: RelayStream, path: str) -> bool:
    try:
        await stream.ask("S", fields.path(path))
    except OSError as error:
        if error.errno in NOT_THERE:
            return False
        raise
    return True


@dataclass(frozen=True)
class StagedEntry:
    """An entry on its way."""

    stream: RelayStream
    folder: str
    key: str
    entries: Mapping[str, bytes]
    fifo: str | None = None

    async def asked(self, before: Asked | None = None, after: Asked | None = None) -> list[OSError | None]:
        """Send all at once, in this order, and clear away what wasn't staged; None for each that went well."""
        unfinished = f"{self.folder}/{unfinished_name(self.key)}"
        asked = [self.stream.ask("M", fields.path(unfinished))]
        for name, content in self.entries.items():
            asked += writes(self.stream, f"{unfinished}/{name}", content)
        if self.fifo is not None:
            asked.append(self.stream.ask("F", fields.path(f"{unfinished}/{self.fifo}")))
        asked.append(self.stream.ask("R", fields.path(unfinished, f"{self.folder}/{self.key}")))
        found = await ask_all([*([before] if before else ()), *asked, *([after] if after else ())])
        # also where the entry was there before: this attempt's is left beside it
        if any(found[bool(before) :][: len(asked)]):
            await self.stream.ask("X", fields.path(unfinished))
        return found


def is_new(made: Sequence[OSError | None], full: Full) -> bool:
    """Whether an entry was staged, and not there before."""
    *written, renamed = made
    if failed := next(filter(None, written), None):
        raise unwritten(failed, full)
    if renamed is not None and renamed.errno not in (errno.ENOTEMPTY, errno.EEXIST):
        raise unwritten(renamed, full)
    return renamed is None


def writes(stream: RelayStream, path: str, content: bytes) -> list[Asked]:
    """One file in pieces, the first of which makes it."""
    pieces = range(0, max(1, len(content)), MOST_DATA)
    return [
        stream.ask("W", fields.path(path) + fields.number(at == 0) + content[at : at + MOST_DATA])
        for at in pieces
    ]


async def ask_all(asked: Sequence[Asked]) -> list[OSError | None]:
    """Send all at once, and wait for all: None for each that went well. Raises StreamEnded."""
    answers = await asyncio.gather(*asked, return_exceptions=True)
    for each in answers:
        if isinstance(each, BaseException) and not isinstance(each, OSError):
            raise each
    return [each if isinstance(each, OSError) else None for each in answers]


def unsaid(error: OSError) -> Exception:
    if error.errno == errno.EAGAIN:
        return SandboxUnavailable("the sandbox's supervisor doesn't take requests")
    return SandboxLost("the sandbox's supervisor is gone")


def unwritten(error: OSError, full: Full) -> Exception:
    if error.errno == errno.ENOSPC:
        return full()
    if error.errno in (errno.ENOENT, errno.ENOTDIR):
        return SandboxLost("the sandbox was destroyed")
    return error


def filled_by_commands() -> Exception:
    return SandboxLost("commands have filled the sandbox's disk", "disk")


def engine_is_full() -> Exception:
    return SandboxUnavailable("the disk on which the sandbox's engine has its files is full")


def unfinished_name(name: str) -> str:
    return f".{name}.{secrets.token_hex(8)}"
