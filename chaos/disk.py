"""A disk of its own for a folder, so small that it can be filled, and that can refuse to be written."""

import asyncio
from pathlib import Path

BALLAST = ".ballast"
BLOCK = bytes(1 << 16)
TRIES = 500


class SmallDisk:
    """A file system in memory, mounted at `folder`; needs the rights to mount."""

    def __init__(self, folder: Path, megabytes: int) -> None:
        self._folder = folder
        self._megabytes = megabytes

    async def mount(self) -> None:
        self._folder.mkdir()
        options = f"size={self._megabytes}m,mode=711"
        await _run("mount", "-t", "tmpfs", "-o", options, "clotho-chaos", str(self._folder))

    async def unmount(self) -> None:
        await _run("umount", "--lazy", str(self._folder))

    async def refuse_writes(self) -> None:
        """Succeeds between two writes: a file that is open for writing keeps a disk writable."""
        for _ in range(TRIES):
            if await _status("mount", "-o", "remount,ro", str(self._folder)) == 0:
                return
        raise RuntimeError(f"{self._folder} stays writable")

    async def take_writes(self) -> None:
        await _run("mount", "-o", "remount,rw", str(self._folder))

    async def fill(self) -> None:
        await asyncio.to_thread(self._fill)

    def _fill(self) -> None:
        with (self._folder / BALLAST).open("wb", buffering=0) as ballast:
            try:
                while True:
                    ballast.write(BLOCK)
            except OSError:
                return

    async def empty(self) -> None:
        await asyncio.to_thread((self._folder / BALLAST).unlink)


async def _status(*command: str) -> int:
    process = await asyncio.create_subprocess_exec(*command, stderr=asyncio.subprocess.DEVNULL)
    return await process.wait()


async def _run(*command: str) -> None:
    if await _status(*command) != 0:
        raise RuntimeError(f"failed: {' '.join(command)}")
