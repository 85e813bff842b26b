"""The channel between a worker and an author's process: messages of JSON and bytes, and errors by name."""

import asyncio
import json
import socket
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from clotho import errors
from clotho.errors import ClothoError, EnvironmentFailed, SandboxLost, Unavailable

HEADER = struct.Struct("!IQ")
"""The number of byte strings that follow the JSON, and the JSON's length."""
LENGTH = struct.Struct("!Q")
MOST_MESSAGE = 8 << 30
"""Bytes of one part of a message: more than any file that crosses it."""


@dataclass(frozen=True)
class Message:
    """One message: JSON fields, and byte strings; the fields say what each of these is."""

    fields: Mapping[str, Any]
    blobs: Sequence[bytes] = ()


class Closed(Exception):
    """The other end has closed the channel."""


class Channel:
    """One end of a channel, on the event loop that opened it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def over(cls, end: socket.socket) -> "Channel":
        return cls(*await asyncio.open_connection(sock=end))

    async def send(self, message: Message) -> None:
        """Raises Closed once the other end has gone, and ValueError for fields that aren't JSON."""
        head = json.dumps(message.fields, ensure_ascii=True).encode()
        # Written without an await between the parts: several tasks send on one channel.
        self._writer.write(HEADER.pack(len(message.blobs), len(head)))
        self._writer.write(b"".join(LENGTH.pack(len(blob)) for blob in message.blobs) + head)
        for blob in message.blobs:
            self._writer.write(blob)
        try:
            await self._writer.drain()
        except OSError as error:
            raise Closed(str(error)) from error

    async def receive(self) -> Message:
        """The next message. Raises Closed where there will be none."""
        try:
            number, length = HEADER.unpack(await self._reader.readexactly(HEADER.size))
            lengths = [LENGTH.unpack(await self._reader.readexactly(LENGTH.size))[0] for _ in range(number)]
            if max((length, *lengths)) > MOST_MESSAGE:
                raise Closed(f"a message of {max((length, *lengths))} bytes")
            fields = json.loads(await self._reader.readexactly(length))
            return Message(fields, [await self._reader.readexactly(each) for each in lengths])
        # ValueError: something else wrote into the channel, so where messages begin is lost
        except (OSError, asyncio.IncompleteReadError, ValueError) as error:
            raise Closed(str(error)) from error

    def close(self) -> None:
        self._writer.close()


def error_fields(error: BaseException) -> dict[str, Any]:
    """Describe an error of Clotho's as JSON, by the name of its class."""
    fields: dict[str, Any] = {"error": type(error).__name__, "text": str(error)}
    if (exhausted := getattr(error, "exhausted", None)) is not None:
        fields["exhausted"] = exhausted
    if isinstance(error, Unavailable) and error.retry_after is not None:
        fields["retry_after"] = error.retry_after.total_seconds()
    return fields


def error_of(fields: Mapping[str, Any]) -> Exception:
    """The error that `error_fields` described; EnvironmentFailed for a class that isn't Clotho's."""
    kind = getattr(errors, str(fields["error"]), None)
    text = str(fields["text"])
    if not (isinstance(kind, type) and issubclass(kind, ClothoError)):
        return EnvironmentFailed(text)
    # its constructor takes a reason, which `error_fields` doesn't send
    if kind is errors.GroupRejected:
        return errors.GroupRejected(errors.Rejection.ENVIRONMENT_FAILED, text)
    error: ClothoError = kind(text)
    if "exhausted" in fields and isinstance(error, SandboxLost | errors.GradingSandboxLost):
        error.exhausted = fields["exhausted"]
    if "retry_after" in fields and isinstance(error, Unavailable):
        error.retry_after = timedelta(seconds=float(fields["retry_after"]))
    return error


def packed_files(files: Mapping[str, str | bytes]) -> tuple[list[str], list[bytes]]:
    """The paths of files, and their contents in the same order."""
    return list(files), [text.encode() if isinstance(text, str) else text for text in files.values()]


def unpacked_files(paths: Sequence[str], blobs: Sequence[bytes]) -> dict[str, bytes]:
    return dict(zip(paths, blobs, strict=True))
