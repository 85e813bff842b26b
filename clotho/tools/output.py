"""A command's output as a model is shown it: without escape sequences and credentials, truncated in the middle.

Output of all commands is truncated in two places. Here a command's output keeps its first 40 % and last 60 % of
50,000 characters. Then `clotho/tools/result_budget.py` moves a result that is over its tool's or its turn's limit,
of any tool, into a file in the sandbox, and shows the model how it begins. Some tools bound their own results, and
the supervisor ends a job that writes 50 MB.
"""

import asyncio
import re
from typing import Final

from clotho.sandbox.backend import SandboxInstance
from clotho.tools.secrecy import without_tokens

OUTPUT_CHARS = 50_000
HEAD_SHARE = 0.4
WINDOW_BYTES = 500_000
"""Size of the two windows, the first and the last, that are read of longer output."""

ESCAPES: Final = re.compile(
    r"""
      \x1b \[ [0-?]* [ -/]* [@-~]                      # CSI: colours, cursor
    | \x1b \] [^\x07\x1b]* (?: \x07 | \x1b\\ )?        # OSC: titles, links
    | \x1b [PX^_] [^\x1b]* (?: \x1b\\ )?               # DCS, SOS, PM, APC
    | \x1b [ -/]* [0-~]                                # everything else
    | \x9b [0-?]* [ -/]* [@-~]
    """,
    re.VERBOSE,
)


def plain(output: bytes, pty: bool = False) -> str:
    """`output` as text without escape sequences and credentials; a terminal's line ends become newlines."""
    text = ESCAPES.sub("", output.decode(errors="replace"))
    return without_tokens(text.replace("\r\n", "\n") if pty else text)


def truncated(text: str, limit: int = OUTPUT_CHARS) -> str:
    """`text` cut to `limit` characters: its first 40 % and last 60 %, around a notice of what is left out."""
    return text if len(text) <= limit else _around(text, text, len(text), limit)


def _around(first: str, last: str, total: int, limit: int) -> str:
    head = int(limit * HEAD_SHARE)
    tail = limit - head
    notice = f"[OUTPUT TRUNCATED - {total - limit:,} chars omitted out of {total:,} total]"
    return f"{first[:head]}\n\n... {notice} ...\n\n{last[-tail:]}"


async def shown_output(sandbox: SandboxInstance, key: str, size: int, pty: bool = False) -> str:
    """The output of job `key`, `size` bytes long, bounded."""
    # A command may write 50 MB, of which the model sees 50,000 characters: the middle of a long output is
    # never read.
    if size <= 2 * WINDOW_BYTES:
        return truncated(await asyncio.to_thread(plain, await sandbox.output(key, 0, size), pty))
    first = await asyncio.to_thread(plain, await sandbox.output(key, 0, WINDOW_BYTES), pty)
    tail = await sandbox.output(key, size - WINDOW_BYTES, WINDOW_BYTES)
    last = await asyncio.to_thread(plain, tail, pty)
    return _around(first, last, len(first) + size - 2 * WINDOW_BYTES + len(last), OUTPUT_CHARS)


async def last_output(sandbox: SandboxInstance, key: str, size: int, limit: int) -> str:
    """The last `limit` characters of what background job `key` has written so far, `size` bytes."""
    # A character has up to four bytes. Escape sequences take some away: then there are fewer than `limit`.
    start = max(0, size - 4 * limit)
    output = await sandbox.output(key, start, size - start)
    return (await asyncio.to_thread(plain, output, pty=True))[-limit:]
