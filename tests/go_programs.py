"""Programs for tests that are built with the Go toolchain, once per user."""

import asyncio
import fcntl
import tempfile
from pathlib import Path


async def go_program(
    name: str, package: str, cache: Path, *, on_path: Path | None, go: Path | None
) -> Path | None:
    """The program that is there, else one built with `go` and kept in folder `cache`; None without either.

    It is linked statically, so that it can be all that there is in a container.
    """
    cached = cache / name
    if on_path is not None or cached.exists() or go is None:
        return on_path or (cached if cached.exists() else None)
    await asyncio.to_thread(cache.mkdir, parents=True, exist_ok=True)
    with cached.with_suffix(".lock").open("w") as lock, tempfile.TemporaryDirectory(dir=cache) as folder:
        await asyncio.to_thread(fcntl.flock, lock, fcntl.LOCK_EX)
        if not cached.exists():
            command = (
                "env",
                "CGO_ENABLED=0",
                f"GOBIN={folder}",
                str(go),
                "install",
                "-ldflags=-s -w",
                package,
            )
            build = await asyncio.create_subprocess_exec(*command, stderr=asyncio.subprocess.PIPE)
            try:
                _, said = await build.communicate()
            finally:
                if build.returncode is None:
                    build.kill()
            if build.returncode != 0:
                raise RuntimeError(f"{' '.join(command)}: {said.decode()}")
            (Path(folder) / name).replace(cached)
    return cached
