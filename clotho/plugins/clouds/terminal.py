"""A stream to a program through a terminal, where a cloud has no other that bears every byte.

A shell in the terminal makes it pass bytes on as they are, says so, and becomes the program.
"""

import asyncio
import shlex
from collections.abc import Awaitable, Callable, Sequence

from clotho.errors import SandboxUnavailable
from clotho.plugins.clouds.streams import Received

MARK = b"clotho-terminal-is-raw\n"
START_SECONDS = 60.0


async def become(argv: Sequence[str], write: Callable[[bytes], Awaitable[None]], received: Received) -> None:
    """Have the shell run `argv` in its place. The terminal echoes the command, which must not hold the mark."""
    first, _, rest = MARK.decode().strip().partition("-")
    command = f"stty raw -echo && printf '%s-%s\\n' {first} {rest} && exec {shlex.join(argv)} 2>/dev/null\n"
    await write(command.encode())
    try:
        async with asyncio.timeout(START_SECONDS):
            if await received.take_past(MARK):
                return
    except TimeoutError:
        pass
    raise SandboxUnavailable("a terminal in the sandbox doesn't answer: its image needs a shell, and stty")
