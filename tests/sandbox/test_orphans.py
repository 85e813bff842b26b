"""Sandboxes that a killed process left half made are cleared away by others; those being made are not."""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from clotho.sandbox.local.backend import LocalBackend
from tests.sandbox.conftest import needs_root

MAKER = """
import asyncio, sys
from pathlib import Path
from clotho.sandbox.backend import SandboxSpec
from clotho.sandbox.local.backend import LocalBackend
from clotho.sandbox.local.host import LocalHost
from clotho.sandbox.scratch import scratch

fill = LocalHost._fill
def fill_when_told(host, folder, user, spec):
    print(folder.name, flush=True)
    sys.stdin.readline()
    fill(host, folder, user, spec)
LocalHost._fill = fill_when_told

with scratch() as path:
    path.touch()
    print(path, flush=True)
    asyncio.run(LocalBackend(Path(sys.argv[1])).create(sys.argv[2], SandboxSpec(disk_mb=16)))
"""


@dataclass
class Maker:
    """A process that stops in its probe, and again in its sandbox, each mounted by then."""

    process: asyncio.subprocess.Process
    scratch: Path

    async def stops_at(self) -> str:
        """The folder's name."""
        assert self.process.stdout is not None
        return (await self.process.stdout.readline()).decode().strip()

    def go_on(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(b"\n")

    async def kill(self) -> None:
        self.process.kill()
        await self.process.wait()


@asynccontextmanager
async def maker(root: Path, lease: str) -> AsyncIterator[Maker]:
    pipe = asyncio.subprocess.PIPE
    command = [sys.executable, "-c", MAKER, str(root), lease]
    process = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe)
    assert process.stdout is not None
    try:
        yield Maker(process, Path((await process.stdout.readline()).decode().strip()))
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


def traces(root: Path, name: str) -> list[str]:
    mounts = Path("/proc/mounts").read_text().splitlines()
    return [
        *map(str, root.glob(f"*/{name}")),
        *(line for line in mounts if f"{root}/" in line and name in line),
    ]


@needs_root
async def test_what_a_killed_process_was_making_is_cleared_away_at_the_next_look(folder: Path) -> None:
    root = folder / "sandboxes-orphaned"
    backend = LocalBackend(root)
    async with maker(root, "probing") as first:
        probe = await first.stops_at()
        assert len(traces(root, probe)) == 2, "its folder and its disk"
        await first.kill()
    async with maker(root, "making") as second:
        await second.stops_at()
        second.go_on()
        half_made = await second.stops_at()
        assert len(traces(root, half_made)) == 4, "two folders with a disk each"
        await second.kill()
    async with maker(root, "alive") as third:
        alive = await third.stops_at()
        assert await backend.reap() == [half_made]
        assert traces(root, half_made) == []
        assert len(traces(root, alive)) == 2
        assert [each.scratch.exists() for each in (first, second, third)] == [False, False, True]
        third.go_on()
        alive = await third.stops_at()
        assert await backend.reap() == [probe]
        assert traces(root, probe) == []
        third.go_on()
        assert await third.process.wait() == 0
    assert [held.lease for held in await backend.leases()] == ["alive"]
    assert await backend.reap() == []
    await backend.destroy("alive")
