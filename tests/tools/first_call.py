"""Program that makes the first call of a tool in its process, and prints what the costliest callback took.

Arguments: the tool, and a folder for its sandbox.
"""

import asyncio
import sys
from pathlib import Path

from clotho.sandbox.backend import SandboxSpec
from clotho.sandbox.local.backend import LocalBackend
from tests.event_loop import watched_callbacks
from tests.support import SHARED_LEASE
from tests.tools.calls import ToolCalls
from tests.tools.ledgers import SERVERS
from tests.tools.rows import ROWS

LEASE = "first-call/lease/0"


async def main(name: str, folder: str) -> None:
    backend = LocalBackend(Path(folder))
    calls = ToolCalls(await backend.create(LEASE, SandboxSpec.model_validate(SHARED_LEASE)), LEASE)
    try:
        await calls.all(ROWS[name].before)
        async with watched_callbacks() as callbacks:
            done = await calls.run(name, ROWS[name].good)
        assert done.failure is None and not done.names_error, done.content
        sys.stdout.write(f"{callbacks.longest} {callbacks.what}")
    finally:
        await SERVERS.close()
        await backend.destroy(LEASE)


asyncio.run(main(*sys.argv[1:]))
