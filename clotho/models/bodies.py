"""Bounded reading and decompression of a model server's answers."""

import zlib
from collections.abc import AsyncIterator

import aiohttp

from clotho.errors import ModelUnavailable

ACCEPTED = "gzip, deflate"
PIECE_BYTES = 1 << 16
"""Decompressed at once: a few compressed bytes can stand for a thousand times as many."""
ERROR_BYTES = 1 << 16
"""Read of a refusal."""
ANSWER_BYTES = 8 << 20
"""Read of an answer, or of one event of a stream, after decompression."""
EITHER_HEADER = zlib.MAX_WBITS | 32


async def decoded(answer: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
    """Yield the decompressed body; raises ModelUnavailable for an unrequested or broken encoding."""
    encoding = answer.headers.get("content-encoding", "").strip().lower() or "identity"
    if encoding not in ("identity", "gzip", "x-gzip", "deflate"):
        raise ModelUnavailable("the model server's answer is compressed in a way that wasn't asked for")
    inflate, begun = zlib.decompressobj(EITHER_HEADER), False
    async for received in answer.content.iter_any():
        if encoding == "identity":
            yield received
            continue
        begun = True
        while received:
            try:
                piece = inflate.decompress(received, PIECE_BYTES)
            except zlib.error:
                raise ModelUnavailable("the model server's answer is no compressed data") from None
            received = inflate.unconsumed_tail
            yield piece
    # the connection may end as it should where a proxy has lost the rest
    if begun and not inflate.eof:
        raise ModelUnavailable("the model server's compressed answer ends early")


async def read_whole(answer: aiohttp.ClientResponse, limit: int = ANSWER_BYTES) -> bytes:
    """The body; raises ModelUnavailable for one of more than `limit` bytes."""
    body, cut = await read_beginning(answer, limit)
    if cut:
        raise too_long(limit)
    return body


async def read_beginning(answer: aiohttp.ClientResponse, limit: int = ERROR_BYTES) -> tuple[bytes, bool]:
    """The first `limit` bytes of the body, and whether there is more."""
    body = bytearray()
    async for piece in decoded(answer):
        body += piece
        if len(body) > limit:
            return bytes(body[:limit]), True
    return bytes(body), False


async def lines(answer: aiohttp.ClientResponse, limit: int = ANSWER_BYTES) -> AsyncIterator[bytes]:
    """The lines of the body without their ends, and last what comes after them.

    Raises ModelUnavailable for one of more than `limit` bytes.
    """
    line = bytearray()
    async for piece in decoded(answer):
        start = 0
        while (end := piece.find(b"\n", start)) >= 0:
            line += piece[start:end]
            yield bytes(line)
            line.clear()
            start = end + 1
        line += piece[start:]
        if len(line) > limit:
            raise too_long(limit)
    yield bytes(line)


def too_long(limit: int) -> ModelUnavailable:
    return ModelUnavailable(
        f"the model server's answer is longer than {limit >> 20} MiB (worker.model_answer_mb)"
    )
