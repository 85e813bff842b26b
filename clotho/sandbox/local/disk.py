"""A bounded disk for one sandbox: an ext4 file system in a sparse file, where this host can mount such a thing."""

import errno
import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from clotho.errors import SandboxUnavailable
from clotho.sandbox.local import mounts
from clotho.sandbox.scratch import scratch_folder
from clotho.sandbox.supervised.launch import private

# Without a journal: a crash of the host ends the sandbox anyway, and its checkpoints are elsewhere.
FEATURES = ("-O", "^has_journal,^resize_inode,large_dir", "-E", "lazy_itable_init=1,nodiscard")
MKFS = ("mkfs.ext4", "-q", "-F", "-m", "0", *FEATURES)
"""With large_dir, a directory is full when the disk is: without, an index of links with long names is full at some
tens of thousands, and at other numbers in a restored directory, whose names come in another order."""
# noinit_itable: else the kernel zeroes inode tables in the background, and the sparse image grows
OPTIONS = "loop,nosuid,nodev,noatime,noinit_itable"
PROBE_MB = 4
RESERVE_MB = 64
RESERVE = "reserve"
RESERVED_FILES = 128
"""Inodes that the verifier gets back with the reserve."""
SIZES_KEPT = 8
"""Templates in memory, of 0.1 to 0.7 MB each."""


def usable(image: Path, mount_point: Path) -> bool:
    """Try to make and mount a bounded disk; the caller removes it, whatever the result."""
    if os.geteuid() != 0 or shutil.which("mkfs.ext4") is None:
        return False
    try:
        allot(image, PROBE_MB)
        make_in(image, mount_point)
    except SandboxUnavailable:
        return False
    return True


def allot(image: Path, size_mb: int) -> None:
    with open(image, "wb", opener=private) as file:
        file.truncate(size_mb << 20)


def make_in(image: Path, mount_point: Path, reserved: bool = False) -> None:
    """A file system in an image that was allotted; `reserved` has the inodes of a reserve.

    Takes 1 ms and next to no space, whatever the size, once this process has made one of the same size.
    """
    _template(image.stat().st_size, reserved).write(image)
    mounts.mount_new(image, mount_point)


def reserve(folder: Path, size_mb: int) -> None:
    """Take room in a file system; deleting `folder` gives it back. The image stays as small as it was.

    A disk that was restored from a full one may have less: its directories take more room than the first one's.
    """
    size = min(RESERVE_MB, size_mb // 16) << 20
    if size:
        with (folder / "blocks").open("wb") as file:
            try:
                # takes blocks without writing them: the sparse image takes no more of the host's disk
                os.posix_fallocate(file.fileno(), 0, size)
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise


def mount(image: Path, mount_point: Path) -> None:
    """Mount an image unless it is mounted: a worker with mounts of its own doesn't see its predecessor's.

    mount(8) finds the device that has the image already: on two devices the image would be damaged.
    """
    if not _is_mounted(mount_point):
        _run("mount", "-o", OPTIONS, str(image), str(mount_point))


def remove(image: Path, mount_point: Path) -> None:
    while _is_mounted(mount_point):  # two attachments at once can have mounted it twice
        mounts.unmount(mount_point)
    image.unlink(missing_ok=True)


def _is_mounted(mount_point: Path) -> bool:
    """Like Path.is_mount, at half its cost."""
    try:
        return os.lstat(mount_point).st_dev != os.lstat(mount_point.parent).st_dev
    except FileNotFoundError:
        return False


@dataclass(frozen=True)
class Template:
    """A fresh file system: the parts of its image that aren't zero."""

    parts: tuple[tuple[int, bytes], ...]

    def write(self, image: Path) -> None:
        with image.open("r+b") as file:
            for offset, content in self.parts:
                file.seek(offset)
                file.write(content)


@lru_cache(SIZES_KEPT)
def _template(size: int, reserved: bool) -> Template:
    """File systems of one template have one UUID, and one seed for the hashes of names: they share nothing else."""
    # mkfs runs once a size; afterwards only the parts that it wrote are copied, without a process.
    image = os.memfd_create("template", os.MFD_CLOEXEC)
    try:
        os.ftruncate(image, size)
        with scratch_folder() as tree:
            if reserved:
                _make_files(tree / RESERVE)
            # not /proc/self: mkfs is another process
            _run(*MKFS, "-d", str(tree), f"/proc/{os.getpid()}/fd/{image}")
        return Template(tuple(_parts(image, size)))
    finally:
        os.close(image)


def _make_files(folder: Path) -> None:
    folder.mkdir(0o700)
    for number in range(RESERVED_FILES):
        # an empty file takes an inode and no block
        os.mknod(folder / str(number))


def _parts(image: int, size: int) -> Iterator[tuple[int, bytes]]:
    end = 0
    while end < size:
        try:
            start = os.lseek(image, end, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:  # only a hole is left
                return
            raise
        end = os.lseek(image, start, os.SEEK_HOLE)
        yield start, os.pread(image, end - start, start)


def _run(*command: str) -> None:
    result = subprocess.run(command, capture_output=True, text=True)
    if result.returncode != 0:
        raise SandboxUnavailable(f"a sandbox's disk: {command[0]}: {result.stderr.strip()}")
