"""A bounded disk for one sandbox: an ext4 file system in a sparse file, where this host can mount such a thing."""

import os
import shutil
import subprocess
from pathlib import Path

from clotho.errors import SandboxUnavailable
from clotho.sandbox.local.folders import private

MKFS = ("mkfs.ext4", "-q", "-F", "-m", "0", "-O", "^has_journal", "-E", "lazy_itable_init=1,nodiscard")
OPTIONS = "loop,nosuid,nodev,noatime,noinit_itable"
PROBE_MB = 4
RESERVE_MB = 64
RESERVED_FILES = 128
"""Inodes of the same kind: making one costs 20 µs, and every sandbox pays for all."""


def usable(image: Path, mount_point: Path) -> bool:
    """Whether this process can make and mount a bounded disk: tried, and to be removed in any case."""
    if os.geteuid() != 0 or shutil.which("mkfs.ext4") is None:
        return False
    try:
        make(image, mount_point, PROBE_MB)
    except SandboxUnavailable:
        return False
    return True


def make(image: Path, mount_point: Path, size_mb: int) -> None:
    """Takes 10 ms and next to no space, whatever the size."""
    allot(image, size_mb)
    make_in(image, mount_point)


def allot(image: Path, size_mb: int) -> None:
    with open(image, "wb", opener=private) as file:
        file.truncate(size_mb << 20)


def make_in(image: Path, mount_point: Path) -> None:
    _run(*MKFS, str(image))
    mount(image, mount_point)


def reserve(folder: Path, size_mb: int) -> None:
    """Take room in a file system that deleting `folder` gives back; the image stays as small as it was."""
    folder.mkdir(mode=0o700)
    size = min(RESERVE_MB, size_mb // 16) << 20
    if size:
        with (folder / "blocks").open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, size)
    for number in range(RESERVED_FILES):
        os.mknod(folder / str(number))


def mount(image: Path, mount_point: Path) -> None:
    """Mount an image, unless it is: a worker with mounts of its own doesn't see its predecessor's."""
    if not mount_point.is_mount():
        _run("mount", "-o", OPTIONS, str(image), str(mount_point))


def remove(image: Path, mount_point: Path) -> None:
    while mount_point.is_mount():  # two attachments at once can have mounted it twice
        _run("umount", "--lazy", str(mount_point))
    image.unlink(missing_ok=True)


def _run(*command: str) -> None:
    result = subprocess.run(command, capture_output=True, text=True)
    if result.returncode != 0:
        raise SandboxUnavailable(f"a sandbox's disk: {command[0]}: {result.stderr.strip()}")
