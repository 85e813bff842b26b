"""Serve this machine's sandboxes to the worker at the other end of standard input and output."""

import argparse
import asyncio
import os
import sys
from pathlib import Path

from clotho.config import SandboxSettings
from clotho.errors import ClothoError
from clotho.logs import configure
from clotho.plugins.ssh.remote.server import serve
from clotho.sandbox.reaper import going_on
from clotho.sandbox.registry import BackendsBeside, open_backend


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m clotho.plugins.ssh.remote", description=__doc__)
    parser.add_argument(
        "folder", type=Path, help="where the sandboxes are; made as sandbox.root of a worker is"
    )
    parser.add_argument("--backend", default="local", help="what makes them, as sandbox.backend of a worker")
    given = parser.parse_args()
    stdout = os.fdopen(os.dup(sys.stdout.fileno()), "wb", buffering=0)
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # nothing else is printed between the frames
    configure("text", "sandbox host")
    try:
        asyncio.run(_serve(SandboxSettings(backend=given.backend), given.folder, stdout))
    except ClothoError as error:
        sys.exit(str(error))


async def _serve(settings: SandboxSettings, folder: Path, stdout: object) -> None:
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    transport, protocol = await loop.connect_write_pipe(
        lambda: asyncio.StreamReaderProtocol(asyncio.StreamReader()), stdout
    )
    async with asyncio.TaskGroup() as tasks:
        reaping = tasks.create_task(_reap_others(settings, folder))
        await serve(
            open_backend(settings, folder, worker_elsewhere=True),
            reader,
            asyncio.StreamWriter(transport, protocol, None, loop),
        )
        reaping.cancel()


async def _reap_others(settings: SandboxSettings, folder: Path) -> None:
    """Clear away what has expired of stores that no worker serves any more."""
    with going_on("other stores' sandboxes not reaped"):
        for other in await asyncio.to_thread(BackendsBeside(settings, folder)):
            with going_on("another store's sandboxes not reaped"):
                await other.reap()


main()
