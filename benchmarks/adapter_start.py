"""Start time of the adapter, beside that of the import of Atropos that it needs."""

import asyncio
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.table import Row
from clotho.errors import Unavailable
from clotho.processes.child import ChildProcess
from clotho.processes.ports import HOST

REPEATS = 3
PATIENCE = 90.0
IMPORT = [sys.executable, "-c", "import atroposlib.envs.base, os; os._exit(0)"]


async def adapter_start(command: Callable[[str], list[str]], log: Path) -> list[Row]:
    """From the process' start to its first request to the trainer's API; `command` is given the API's URL."""
    imports, starts = [], []
    for _ in range(REPEATS):
        imports.append(await _until_ended(ChildProcess(IMPORT, log)))
        starts.append(await _until_contact(command, log))
    start, bare = statistics.median(starts), statistics.median(imports)
    return [
        Row("import atroposlib.envs.base, a process of its own", f"{bare:.1f} s"),
        Row("the adapter, until it asks to be registered", f"{start:.1f} s"),
        Row("… beyond the import", f"{start - bare:.1f} s", "≤ 2 s"),
    ]


async def _until_ended(process: ChildProcess) -> float:
    clock = time.perf_counter()
    await process.start()
    status = await process.wait()
    assert status == 0, process.last_words
    return time.perf_counter() - clock


async def _until_contact(command: Callable[[str], list[str]], log: Path) -> float:
    contacted = asyncio.Event()

    def on_connection(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        contacted.set()
        writer.close()

    async with await asyncio.start_server(on_connection, HOST, 0) as listener:
        port = listener.sockets[0].getsockname()[1]
        process = ChildProcess(command(f"http://{HOST}:{port}"), log)
        clock = time.perf_counter()
        await process.start()
        try:
            contact, end = asyncio.create_task(contacted.wait()), asyncio.create_task(process.wait())
            await asyncio.wait((contact, end), timeout=PATIENCE, return_when=asyncio.FIRST_COMPLETED)
            if not contacted.is_set():
                raise Unavailable(f"the adapter asked for nothing: {process.last_words}")
            return time.perf_counter() - clock
        finally:
            await process.kill()
