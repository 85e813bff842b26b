"""Free space of the disks that a host's runs write to: one finding a disk, since one full disk is one cause."""

import os
from collections.abc import Mapping
from pathlib import Path

from clotho.cli.doctor.findings import Finding
from clotho.config import Settings
from clotho.embedded.services import SPACE_BYTES

LOW_BYTES = 1 << 30
"""Free space below which a disk needs attention."""
LOW_FILES = 10_000
"""Files that may still be made, where the file system counts them, below which it does."""


def used_folders(settings: Settings) -> dict[str, Path]:
    """The folders of this host that the store, a development server's database and sandboxes are in."""
    store = {} if "://" in settings.store else {"the store": Path(settings.store)}
    database = settings.folder / "temporal.db"
    of_server = {"Temporal's database": settings.folder} if database.exists() else {}
    return {**store, **of_server, "sandboxes": settings.sandbox.root}


def disk_findings(folders: Mapping[str, Path]) -> list[Finding]:
    """A finding for each disk that `folders` are on. Blocks while a disk doesn't answer."""
    disks: dict[int, list[str]] = {}
    places: dict[int, Path] = {}
    for what, folder in folders.items():
        # The disk of a folder that isn't there yet is that of the nearest one above it.
        above = (folder.absolute(), *folder.absolute().parents)
        there = next(path for path in above if path.exists())
        device = there.stat().st_dev
        disks.setdefault(device, []).append(what)
        places.setdefault(device, there)
    return [_finding(places[device], " and ".join(uses)) for device, uses in disks.items()]


def full_disk(settings: Settings) -> str | None:
    """The first full disk in one line; None where none is. Blocks."""
    return next((each.fact for each in disk_findings(used_folders(settings)) if each.is_full), None)


def _finding(folder: Path, uses: str) -> Finding:
    status = os.statvfs(folder)
    free = status.f_bavail * status.f_frsize
    # 0: the file system makes inodes as it needs them, such as btrfs
    counted = status.f_files > 0
    fact = f"disk of {uses} ({folder}): {free / (1 << 30):.1f} GiB free"
    if free < SPACE_BYTES or (counted and status.f_favail == 0):
        files = f", room for {status.f_favail} more files" if counted else ""
        advice = "free some space: what is written there waits or fails"
        return Finding(f"{fact}{files}: it is full", advice, is_full=True)
    if free < LOW_BYTES or (counted and status.f_favail < LOW_FILES):
        return Finding(f"{fact}, room for {status.f_favail} more files", "free some space before it is full")
    return Finding(fact)
