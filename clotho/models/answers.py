"""Model servers' answers: their bodies, read within bounds, and the counts, reasons and names in them."""

import zlib
from collections.abc import AsyncIterator
from typing import Annotated

import aiohttp
from pydantic import BaseModel, Field

from clotho.errors import ModelUnavailable
from clotho.escaping import for_line, truncate_middle

ACCEPTED = "gzip, deflate"
PIECE_BYTES = 1 << 16
"""Decompressed at once: a few compressed bytes can stand for a thousand times as many."""
ERROR_BYTES = 1 << 16
"""Read of a refusal."""
ANSWER_BYTES = 8 << 20
"""Read of an answer, or of one event of a stream, after decompression."""
EITHER_HEADER = zlib.MAX_WBITS | 32

MOST_TOKENS = 1_000_000_000
"""Far more than any context holds."""
Count = Annotated[int, Field(ge=0, le=MOST_TOKENS)]
"""A count of tokens that a server reports; also an id or a position."""
StopReason = Count | Annotated[str, Field(max_length=1_000)]
REASON_CHARACTERS = 100
NAME_CHARACTERS = 200
VERSION_CHARACTERS = 200
"""Characters of a weight version's name."""
UNFINISHED = frozenset({"abort", "error"})
"""Reasons of an answer that broke off."""


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


class _PromptDetails(BaseModel):
    cached_tokens: Count | None = None


class ReportedUsage(BaseModel):
    """Token counts as OpenAI's API has them."""

    prompt_tokens: Count | None = None
    completion_tokens: Count | None = None
    prompt_tokens_details: _PromptDetails | None = None

    @property
    def cached_prompt_tokens(self) -> int:
        return (self.prompt_tokens_details or _PromptDetails()).cached_tokens or 0


def printable_name(name: str | None) -> str | None:
    """A name that a server gives itself, its model or a request, escaped and cut."""
    return truncate_middle(for_line(name), NAME_CHARACTERS) if name else None
