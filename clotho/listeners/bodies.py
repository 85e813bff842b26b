"""Reading request bodies: bounded in bytes, in time, and in the values that they hold."""

import asyncio
import zlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect
from starlette.types import Receive

from clotho.listeners.refused import Refused

AT_ONCE = 4
"""Bodies of the largest size that may be in memory together, as they were sent."""
BYTES_PER_VALUE = 8
"""A JSON document may hold one value for so many of the bytes that it may have: parsed, `0,0,…` is the largest."""
# an empty list takes 56 bytes in CPython, an empty dict 64
BYTES_PER_CONTAINER = 64
GZIP = 31
"""zlib's window bits for a gzip stream with its header and checksum."""


@dataclass(frozen=True)
class BodyLimits:
    """Limits of one body."""

    sent_bytes: int
    unpacked_bytes: int
    """Largest decompressed body, in bytes."""
    seconds: float
    """Seconds from the headers to the last byte."""


class Bodies:
    """Reads the bodies of one server's requests."""

    def __init__(self, limits: BodyLimits) -> None:
        self.limits = limits
        self._held_bytes = 0

    @asynccontextmanager
    async def body(self, headers: Headers, receive: Receive) -> AsyncIterator[bytes]:
        """The whole body, as it was sent. Raises Refused, and ClientDisconnect."""
        body = bytearray()
        try:
            await self._read(body, headers, receive)
            yield bytes(body)
        finally:
            # in any case: what was read of a refused body counted, too
            self._held_bytes -= len(body)

    def unpacked(self, body: bytes, encoding: str) -> bytes:
        """The document inside, which may be parsed. Blocking. Raises Refused."""
        document = gunzipped(body, self.limits.unpacked_bytes) if "gzip" in encoding.lower() else body
        self.check_values(document)
        return document

    def check_values(self, document: bytes) -> None:
        """Raises Refused for JSON that would take too much memory once it is parsed."""
        if document.count(b",") > self.limits.unpacked_bytes // BYTES_PER_VALUE:
            raise _too_large(f"{self.limits.unpacked_bytes // BYTES_PER_VALUE} values")
        if document.count(b"[") + document.count(b"{") > self.limits.unpacked_bytes // BYTES_PER_CONTAINER:
            raise _too_large(f"{self.limits.unpacked_bytes // BYTES_PER_CONTAINER} lists and objects")

    async def _read(self, body: bytearray, headers: Headers, receive: Receive) -> None:
        announced, most = headers.get("content-length", ""), str(self.limits.sent_bytes)
        # Compared as text: a length may have more digits than the interpreter reads.
        if announced.isdecimal() and (len(announced), announced) > (len(most), most):
            raise _too_large(f"{most} bytes")
        try:
            async with asyncio.timeout(self.limits.seconds):
                while await self._more(body, receive):
                    pass
        except TimeoutError:
            raise Refused(408, f"the body wasn't there within {self.limits.seconds:g} s") from None

    async def _more(self, body: bytearray, receive: Receive) -> bool:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        chunk = message.get("body", b"")
        body += chunk
        self._held_bytes += len(chunk)
        if len(body) > self.limits.sent_bytes:
            raise _too_large(f"{self.limits.sent_bytes} bytes")
        if self._held_bytes > AT_ONCE * self.limits.sent_bytes:
            raise Refused(503, "other bodies fill the room for them", {"retry-after": "5"})
        return bool(message.get("more_body", False))


def gunzipped(body: bytes, most: int) -> bytes:
    """Decompress `body`; raises Refused beyond `most` bytes."""
    pieces: list[bytes] = []
    room = most
    while body:
        stream = zlib.decompressobj(GZIP)
        try:
            # a byte more than there is room for tells a body of exactly the limit from a longer one
            pieces.append(stream.decompress(body, room + 1))
        except zlib.error as error:
            raise Refused(400, f"the body is not gzip: {error}") from error
        room -= len(pieces[-1])
        if room < 0:
            raise _too_large(f"{most} bytes once decompressed")
        if not stream.eof:
            raise Refused(400, "the body is not gzip: it ends too early")
        # A stream may be followed by another, and by padding.
        body = stream.unused_data.lstrip(b"\0")
    return b"".join(pieces)


def _too_large(limit: str) -> Refused:
    return Refused(413, f"the body is larger than {limit}")
