"""A control directory is deleted whoever writes into it meanwhile."""

import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import count, takewhile
from pathlib import Path
from threading import Barrier, Event

import pytest

from clotho.errors import SandboxLost
from clotho.sandbox.supervised.control import ControlDirectory
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


def test_what_is_made_by_those_who_had_found_it_goes_too(tmp_path: Path) -> None:
    control, writes = ControlDirectory(tmp_path / "control" / "agent", None), Event()
    control.create()
    control.stage(JOBS, "job", {f"entry-{number}": b"" for number in range(ENTRIES)})
    found = os.open(control.path / JOBS / "job", os.O_RDONLY)

    def write_on() -> None:
        # until it is deleted: a deleted folder takes no entries
        with suppress(FileNotFoundError):
            for number in range(10 * ENTRIES):
                os.close(os.open(f"late-{number}", os.O_CREAT | os.O_WRONLY, dir_fd=found))
                writes.set()

    with ThreadPoolExecutor() as threads:
        writing = threads.submit(write_on)
        writes.wait()
        control.delete()
    writing.result()
    os.close(found)
    assert list(control.path.parent.iterdir()) == []


def test_what_a_killed_deletion_has_left_goes_with_the_next_one(tmp_path: Path) -> None:
    control = ControlDirectory(tmp_path / "control" / "agent", None)
    left = control.path.with_name("ended-agent") / JOBS
    left.mkdir(parents=True)
    control.create()
    control.delete()
    assert list(control.path.parent.iterdir()) == []
