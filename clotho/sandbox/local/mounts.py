"""Mounting disk images by system calls: mount(8) and umount(8) take longer to start than what they do."""

import ctypes
import errno
import fcntl
import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from clotho.errors import SandboxUnavailable

LOOP_SET_FD, LOOP_SET_STATUS64, LOOP_CONFIGURE, LOOP_CTL_GET_FREE = 0x4C00, 0x4C04, 0x4C0A, 0x4C82
AUTOCLEAR = 4
"""The device is free again once it is neither open nor mounted."""
DEVICE_TRIES = 64
NOSUID, NODEV, NOATIME, DETACH = 0x2, 0x4, 0x400, 0x2
# else the kernel zeroes inode tables in the background, and the sparse image grows
OPTIONS = b"noinit_itable"
SHORTAGES = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})
"""Errors that say nothing of whether this host can mount an image."""

_libc = ctypes.CDLL(None, use_errno=True)


def mount_new(image: Path, mount_point: Path) -> None:
    """Mount an ext4 image that is on no device yet. Raises SandboxUnavailable."""
    with _failures("mount"), _loop_device(image) as device:
        source, target = os.fsencode(device), os.fsencode(mount_point)
        _checked(_libc.mount(source, target, b"ext4", NOSUID | NODEV | NOATIME, OPTIONS))


def unmount(mount_point: Path) -> None:
    """Take a mount away from its place; it ends when nothing uses it any more. Raises SandboxUnavailable."""
    with _failures("umount"):
        _checked(_libc.umount2(os.fsencode(mount_point), DETACH))


@contextmanager
def _loop_device(image: Path) -> Iterator[str]:
    backing = os.open(image, os.O_RDWR | os.O_CLOEXEC)
    try:
        device, path = _attached(backing)
    finally:
        os.close(backing)
    try:
        yield path
    finally:
        # once mounted, the mount holds the device; without a mount, AUTOCLEAR frees it here
        os.close(device)


def _attached(backing: int) -> tuple[int, str]:
    """An open device, and its path. Another program may take the device that the kernel has just called free."""
    control = os.open("/dev/loop-control", os.O_RDWR | os.O_CLOEXEC)
    try:
        fcntl.flock(control, fcntl.LOCK_EX)  # sandboxes made side by side take turns
        for _ in range(DEVICE_TRIES):
            path = f"/dev/loop{fcntl.ioctl(control, LOOP_CTL_GET_FREE)}"
            device = os.open(path, os.O_RDWR | os.O_CLOEXEC)
            try:
                _attach(device, backing)
                return device, path
            except OSError as error:
                os.close(device)
                if error.errno != errno.EBUSY:
                    raise
    finally:
        os.close(control)
    raise SandboxUnavailable("a sandbox's disk: no loop device is free")


def _attach(device: int, backing: int) -> None:
    # struct loop_info64, of which only the flags matter
    status = struct.pack("=5Q4I176x", 0, 0, 0, 0, 0, 0, 0, 0, AUTOCLEAR)
    try:
        fcntl.ioctl(device, LOOP_CONFIGURE, struct.pack("=II232s64x", backing, 0, status))
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        fcntl.ioctl(device, LOOP_SET_FD, backing)  # before Linux 5.8
        fcntl.ioctl(device, LOOP_SET_STATUS64, status)


def _checked(result: int) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


@contextmanager
def _failures(call: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno in SHORTAGES:
            raise
        raise SandboxUnavailable(f"a sandbox's disk: {call}: {error.strerror}") from error
