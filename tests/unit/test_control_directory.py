"""A control directory is deleted whoever writes into it meanwhile."""

import os
from concurrent.futures import ThreadPoolExecutor
from itertools import count, takewhile
from pathlib import Path
from threading import Barrier, Event

import pytest

from clotho.errors import SandboxLost
from clotho.sandbox.supervised.control import ControlDirectory
from clotho.sandbox.supervised.files import MOST_LATE_ENTRIES
from clotho.sandbox.supervised.interface import JOBS

ENTRIES = 500


def test_it_is_deleted_beside_those_that_write_into_it(tmp_path: Path) -> None:
    control, all_write, failed = ControlDirectory(tmp_path / "control" / "agent", None), Barrier(5), Event()
    control.create()
    control.stage(JOBS, "job", {f"entry-{number}": b"" for number in range(ENTRIES)})

    def write_on(name: str) -> None:
        """Note how one job after the other ended, as those do who wait for them."""
        control.publish(f"{JOBS}/job/{name}", b"")
        all_write.wait()
        for number in takewhile(lambda _: not failed.is_set(), count()):
            control.publish(f"{JOBS}/job/{name}-{number}", b"")

    with ThreadPoolExecutor() as threads:
        writing = [threads.submit(write_on, f"writer-{number}") for number in range(all_write.parties - 1)]
        all_write.wait()
        try:
            control.delete()
        except BaseException:
            failed.set()
            raise
    for each in writing:
        with pytest.raises(SandboxLost):
            each.result()
    assert list(control.path.parent.iterdir()) == []


def delete_while_entries_are_made(control: ControlDirectory, patch: pytest.MonkeyPatch, entries: int) -> None:
    """Make an entry in the job's folder before each attempt to remove it, as one does who had found it before."""
    control.create()
    control.stage(JOBS, "job", {})
    found = os.open(control.path / JOBS / "job", os.O_RDONLY)
    late, remove = iter(range(entries)), os.rmdir

    def remove_late(path: str, *, dir_fd: int | None = None) -> None:
        if path == "job" and (number := next(late, None)) is not None:
            os.close(os.open(f"late-{number}", os.O_CREAT | os.O_WRONLY, dir_fd=found))
        remove(path, dir_fd=dir_fd)

    try:
        with patch.context() as patched:
            patched.setattr(os, "rmdir", remove_late)
            control.delete()
    finally:
        os.close(found)


def test_what_is_made_by_those_who_had_found_it_goes_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    control = ControlDirectory(tmp_path / "control" / "agent", None)
    delete_while_entries_are_made(control, monkeypatch, 50)
    assert list(control.path.parent.iterdir()) == []


def test_one_that_is_filled_on_purpose_is_left_to_rm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    control = ControlDirectory(tmp_path / "control" / "agent", None)
    delete_while_entries_are_made(control, monkeypatch, 10 * MOST_LATE_ENTRIES)
    assert list(control.path.parent.iterdir()) == []


def test_what_a_killed_deletion_has_left_goes_with_the_next_one(tmp_path: Path) -> None:
    control = ControlDirectory(tmp_path / "control" / "agent", None)
    left = control.path.with_name("ended-agent") / JOBS
    left.mkdir(parents=True)
    control.create()
    control.delete()
    assert list(control.path.parent.iterdir()) == []
