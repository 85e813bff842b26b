"""Costs of a checkpoint and a restore: of workspaces of several kinds, and of one that hasn't changed.

python -m benchmarks.checkpoints
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from benchmarks.commands import sandbox_root
from benchmarks.table import Row
from clotho.config import Settings
from clotho.identifiers.ids import job_key
from clotho.sandbox.backend import Job, SandboxBackend, SandboxInstance, SandboxSpec
from clotho.sandbox.checkpoints import Checkpoint, Restore
from clotho.sandbox.registry import open_backend

REPEATS = 9
SPEC = SandboxSpec(disk_mb=1024)
SMALL_FILES = "for n in $(seq 1000); do mkdir -p d$((n % 20)); seq $((n % 700)) > d$((n % 20))/$n; done"
MEGABYTES = "head -c {half}M /dev/urandom | split -b 1M; seq 9999999 | head -c {half}M | split -b 1M - y"
WORKSPACES = {
    "1000 small files": SMALL_FILES,
    "10 MB": MEGABYTES.format(half=5),
    "100 MB": MEGABYTES.format(half=50),
}
"""Half of the megabytes can't be compressed."""

Step = Callable[[], Awaitable[object]]


async def measure() -> list[Row]:
    """Medians of a checkpoint to a file, of an unchanged one, of a restore and of a manifest."""
    rows = []
    with sandbox_root() as root:
        backend = open_backend(Settings(), root)
        for name, script in WORKSPACES.items():
            sandbox = await backend.create(name, SPEC)
            try:
                await _run(sandbox, script)
                rows += await _rows(name, backend, sandbox, root / "blob")
            finally:
                await backend.destroy(name)
    return rows


async def _rows(name: str, backend: SandboxBackend, sandbox: SandboxInstance, blob: Path) -> list[Row]:
    kept = blob.with_name("kept")
    taken = await sandbox.checkpoint(kept)
    assert isinstance(taken, Checkpoint)

    async def nothing() -> None:
        pass

    async def touch() -> None:
        await _run(sandbox, "date +%N > touched")

    async def destroy() -> None:
        await backend.destroy("restored")

    restore = Restore(taken, kept)
    full = await _median(nothing, lambda: sandbox.checkpoint(blob))
    known = await _median(nothing, lambda: sandbox.checkpoint(blob, previous=taken))
    empty = await _median(destroy, lambda: backend.create("restored", SPEC))
    restored = await _median(destroy, lambda: backend.create("restored", SPEC, restore=restore))
    await destroy()
    manifest = await _median(touch, sandbox.manifest)
    return [
        Row(f"checkpoint, {name}", f"{full:.0f} ms, {taken.size / 1e6:.2f} MB"),
        Row(f"checkpoint, {name}, unchanged", f"{known:.1f} ms", "≤ 5 ms"),
        Row(f"restore, {name}", f"{restored - empty:.0f} ms more than an empty sandbox's {empty:.0f} ms"),
        Row(f"manifest, {name}, one file changed", f"{manifest:.1f} ms"),
    ]


async def _run(sandbox: SandboxInstance, script: str) -> None:
    job = Job(key=job_key(script, time.monotonic_ns()), script=script)
    await sandbox.start(job)
    assert (await sandbox.wait(job.key, 120)).exit_code == 0


async def _median(before: Step, step: Step) -> float:
    """Milliseconds of `step`, each time after `before`."""
    seconds = []
    for _ in range(REPEATS):
        await before()
        began = time.perf_counter()
        await step()
        seconds.append(time.perf_counter() - began)
    return sorted(seconds)[REPEATS // 2] * 1e3


if __name__ == "__main__":
    for row in asyncio.run(measure()):
        print(f"{row.what:40}{row.figure:60}{row.aim}")  # noqa: T201
