"""A folder for servers, stores and sandboxes."""

import asyncio
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path


@asynccontextmanager
async def scratch() -> AsyncIterator[Path]:
    """One that the users of sandboxes may pass through; gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="clotho-chaos-") as name:
        folder = Path(name)
        await asyncio.to_thread(folder.chmod, 0o711)
        yield folder
