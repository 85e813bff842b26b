"""A folder for servers, stores and sandboxes, and an end that leaves nothing of them."""

import asyncio
import signal
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path


@asynccontextmanager
async def scratch() -> AsyncIterator[Path]:
    """One that the users of sandboxes may pass through; gone afterwards, also after a SIGTERM."""
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    with tempfile.TemporaryDirectory(prefix="clotho-chaos-") as name:
        folder = Path(name)
        await asyncio.to_thread(folder.chmod, 0o711)
        yield folder
