"""The base of an image for tests: a Debian of this machine's own release, made once per user by debootstrap."""

import asyncio
import fcntl
import os
import shutil
import tempfile
from pathlib import Path

from clotho.config import cache_folder

PACKAGES = "python3,python3-venv,ca-certificates,bubblewrap,e2fsprogs,tini"
RELEASE = "bookworm"


async def base_root() -> Path | None:
    """An archive of the root's files; None where it can't be made."""
    archive = cache_folder() / "images" / f"{RELEASE}.tar"
    if os.geteuid() != 0 or shutil.which("debootstrap") is None:
        return archive if archive.exists() else None
    await asyncio.to_thread(archive.parent.mkdir, parents=True, exist_ok=True)
    with archive.with_suffix(".lock").open("w") as lock:
        await asyncio.to_thread(fcntl.flock, lock, fcntl.LOCK_EX)
        if not archive.exists():
            with tempfile.TemporaryDirectory(dir=archive.parent) as folder:
                root, packed = Path(folder, "root"), Path(folder, archive.name)
                await _run("debootstrap", "--variant=minbase", f"--include={PACKAGES}", RELEASE, str(root))
                shutil.rmtree(root / "var/cache/apt/archives")
                await _run("tar", "-C", str(root), "--numeric-owner", "-cf", str(packed), ".")
                packed.replace(archive)
    return archive


async def _run(*command: str) -> None:
    process = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    try:
        said, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.terminate()
            await process.wait()
    if process.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}: {said.decode()[-2_000:]}")
