"""Archives on their way between a supervisor's FIFO and a compressed file of the host, which never looks inside.

Everything here blocks. The supervisor's child closes the FIFO when it ends, with an answer or without one.
"""

import hashlib
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from zstandard import ZstdCompressor, ZstdDecompressor, ZstdError

from clotho.errors import JournalCorrupt, SandboxLost, SandboxUnavailable
from clotho.host_failures import HOST_ERRNOS
from clotho.sandbox.checkpoints import Restore
from clotho.sandbox.supervised.interface import Control, Pipe
from clotho.sandbox.supervised.transfers import Transfers

COMPRESSION_LEVEL = 1
CHUNK_BYTES = 1 << 18
RESTORE_SECONDS = 600
LOOK_MS = 1000
"""After this time without a byte we look whether anybody is there."""
ANSWER_SECONDS = 30.0
"""Seconds that a supervisor has to open a stream, and to answer once it has closed it."""
STAYS = frozenset({"not_found", "is_directory", "name_too_long", "not_regular"})
"""Answers that any sandbox of the same kind would give to the same archive."""


def own_disk_is_full() -> SandboxLost:
    return SandboxLost("commands filled the sandbox's disk: a new one has no room for its checkpoint", "disk")


@dataclass(frozen=True)
class Packed:
    """The supervisor's answer to a request for an archive."""

    word: str
    size: int
    """Bytes it expected."""
    content_size: int
    """Bytes there were."""
    details: tuple[str, ...]
    digest: str
    blob_size: int


@dataclass(frozen=True)
class ArchiveTransfer:
    """One archive request to a supervisor."""

    control: Control
    incarnation: str
    key: str

    @property
    def _transfers(self) -> Transfers:
        return Transfers(self.control)

    def pack(self, fields: Mapping[str, str], roots: Mapping[str, str], to: Path) -> Packed:
        """Ask for an archive of `roots` (label -> path) and write it to `to`, which appears whole or not at all."""
        unfinished = to.with_name(f".{to.name}.{self.key}")
        self._transfers.stage_archive(self.key, "pack", fields, roots)
        try:
            with unfinished.open("wb") as file, self._stream(writing=False) as stream:
                # the stream is open by now: the supervisor doesn't open a FIFO that nobody reads
                self.control.say("file", self.key)
                digest, content_size, ended = self._receive(stream, file.fileno(), _deadline(fields))
            word, size, details = self._answer()
            # A supervisor that answers and dies leaves the rest in the pipe: what wasn't read to its end
            # isn't whole.
            if word == "ok" and not ended:
                raise SandboxLost("the sandbox's supervisor is gone")
            blob_size = unfinished.stat().st_size
            if word == "ok":
                unfinished.rename(to)
        finally:
            unfinished.unlink(missing_ok=True)
            self._transfers.forget(self.key)
        return Packed(word, size, content_size, tuple(details.split()), digest, blob_size)

    def unpack(
        self, restore: Restore, roots: Mapping[str, str], full: Callable[[], Exception] | None = None
    ) -> None:
        """Raises JournalCorrupt for a damaged blob, and SandboxLost for a blob that no sandbox can unpack.

        `full` makes the error of a full disk; without it, a full disk is an outage.
        """
        fields = {"timeout_ms": str(RESTORE_SECONDS * 1000)}
        self._transfers.stage_archive(self.key, "unpack", fields, roots)
        try:
            self.control.say("file", self.key)
            with self._stream(writing=True) as stream, restore.blob.open("rb") as blob:
                digest = self._send(blob, stream, _deadline(fields))
            word, size, _ = self._answer()
        except ZstdError as error:
            raise JournalCorrupt(f"checkpoint {restore.checkpoint.digest}: {error}") from None
        finally:
            self._transfers.forget(self.key)
        # a blob that is cut short ends the stream early, which is an interruption for the supervisor
        if word == "damaged" or (word in ("ok", "interrupted") and digest != restore.checkpoint.digest):
            raise JournalCorrupt(f"checkpoint {restore.checkpoint.digest} is damaged")
        said = f"restoring checkpoint {restore.checkpoint.digest}: {word} {size}"
        if word == "no_space" and full is not None:
            raise full() from SandboxUnavailable(said)
        if word in STAYS or (word == "failed" and size not in HOST_ERRNOS):
            raise SandboxLost(said)
        if word != "ok":
            raise SandboxUnavailable(said)

    # ---- the stream ----

    @contextmanager
    def _stream(self, *, writing: bool) -> Iterator[Pipe]:
        """Open the stream: for reading at once, for writing as soon as the supervisor reads."""
        deadline = time.monotonic() + ANSWER_SECONDS
        path = self._transfers.file(self.key, "stream")
        with ExitStack() as stack:
            while True:
                try:
                    stream = stack.enter_context(self.control.pipe(path, writing=writing))
                    break
                except OSError:  # ENXIO: the supervisor hasn't opened its end yet
                    if not writing or time.monotonic() > deadline or not self._alive():
                        raise
                    time.sleep(0.0005)
            yield stream

    def _receive(self, stream: Pipe, to: int, deadline: float) -> tuple[str, int, bool]:
        """Returns digest, size, and whether the stream was read to its end."""
        size, digest, compressor = 0, hashlib.sha256(), ZstdCompressor(level=COMPRESSION_LEVEL).compressobj()
        while ready := self._ready(stream, deadline, packing=True):
            chunk = stream.read(CHUNK_BYTES)
            if not chunk:
                break
            size += len(chunk)
            # Of the archive, not of the blob: another version of zstd writes other bytes.
            digest.update(chunk)
            _write(to, compressor.compress(chunk))
        _write(to, compressor.flush())
        return digest.hexdigest(), size, ready

    def _send(self, blob: BinaryIO, stream: Pipe, deadline: float) -> str:
        """Returns the digest of the whole archive, also where nobody reads it to its end."""
        digest, is_read = hashlib.sha256(), True
        with ZstdDecompressor().stream_reader(blob) as reader:
            while chunk := reader.read(CHUNK_BYTES):
                digest.update(chunk)
                rest = memoryview(chunk)
                while rest and (is_read := is_read and self._ready(stream, deadline)):
                    try:
                        rest = rest[stream.write(rest) :]
                    except BrokenPipeError:  # the supervisor has stopped reading, and tells why in its answer
                        is_read = False
        return digest.hexdigest()

    def _ready(self, stream: Pipe, deadline: float, *, packing: bool = False) -> bool:
        """False where the other side is gone. Raises SandboxUnavailable where it should have ended long ago.

        After "ok" to `packing`, the rest of the archive may still be in the pipe: it is read to its end.
        """
        while not stream.ready(LOOK_MS):
            answer = self._transfers.answer(self.key)
            if (answer is not None and not (packing and answer[0] == "ok")) or not self._alive():
                return False
            if time.monotonic() > deadline:
                raise SandboxUnavailable("the sandbox's supervisor doesn't end an archive")
        return True

    def _answer(self) -> tuple[str, int, str]:
        deadline = time.monotonic() + ANSWER_SECONDS
        while (answer := self._transfers.answer(self.key)) is None:
            if not self._alive():
                raise SandboxLost("the sandbox's supervisor is gone")
            if time.monotonic() > deadline:
                raise SandboxUnavailable("the sandbox's supervisor doesn't answer")
            time.sleep(0.0005)
        return answer

    def _alive(self) -> bool:
        return self.control.incarnation() == self.incarnation


def _deadline(fields: Mapping[str, str]) -> float:
    """The time by which the supervisor must have ended an archive, which it does by itself at the time-out."""
    return time.monotonic() + int(fields["timeout_ms"]) / 1000 + ANSWER_SECONDS


def _write(to: int, content: bytes) -> None:
    rest = memoryview(content)
    while rest:
        rest = rest[os.write(to, rest) :]
