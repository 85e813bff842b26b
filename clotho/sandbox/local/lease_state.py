"""The owner and the state of a sandbox's lease, read from its folder."""

import time
from pathlib import Path

from clotho.errors import InvalidInput
from clotho.sandbox.backend import Labels
from clotho.sandbox.local.folders import SandboxFolder, SandboxRecord

GRACE_SECONDS = 120.0
"""Seconds that a supervisor has, after its lease, to end by itself."""


def labelled(folder: SandboxFolder, record: SandboxRecord, labels: Labels | None) -> SandboxRecord:
    """The record with `labels`, to be called with the folder's lock held.

    A rollout is its store's, but the cluster or namespace that runs it may be another one after a restart.
    """
    owners = [(each.store, each.rollout) if each else None for each in (record.labels, labels)]
    if owners[0] != owners[1]:
        raise InvalidInput(
            f"lease {record.lease} is held by {record.labels}, not by {labels}: use another folder"
        )
    if record.labels == labels:
        return record
    record = record.model_copy(update={"labels": labels})
    folder.write_record(record)
    return record


def is_left(folder: SandboxFolder) -> bool:
    """Whether a sandbox is expired or unfinished. Call it with the lock held: its maker has died then."""
    return folder.is_unfinished() or (folder.files.exists() and expiry(folder) + GRACE_SECONDS < time.time())


def expiry(folder: SandboxFolder) -> float:
    """Unix seconds of a lease's end; without a deadline, by the age of its folder."""
    files = [path / "deadline" for path in folder.instances()]
    return max(map(_changed, (*files, folder.files)))


def _changed(path: Path) -> float:
    """Unix seconds; 0 for what isn't there, or has just gone."""
    try:
        return path.stat().st_mtime
    except FileNotFoundError:
        return 0.0
