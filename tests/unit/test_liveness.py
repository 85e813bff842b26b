"""Heartbeats in the store: their age goes by its clock, whatever a host takes the time to be."""

import os
import time
from pathlib import Path

import pytest

from clotho.config import read_settings_file
from clotho.journal import Journal
from clotho.journal.folder import FilesystemStore
from clotho.processes import liveness
from clotho.processes.liveness import LIVENESS_SECONDS, Liveness, heartbeat_age, heartbeat_ages, is_present
from clotho.runs.starting import settings_notice

HOST = "host"


class SetClock:
    """The clock of one host, in place of the module `time`."""

    def __init__(self) -> None:
        self.ahead = 0.0

    def time(self) -> float:
        return time.time() + self.ahead


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SetClock:
    clock = SetClock()
    monkeypatch.setattr(liveness, "time", clock)
    return clock


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    return Journal(FilesystemStore(tmp_path))


def let_pass(store: Path, seconds: float) -> None:
    """Have the store's files be older."""
    for file in (store / "~present").rglob("*"):
        os.utime(file, (file.stat().st_mtime - seconds,) * 2)


@pytest.mark.parametrize("ahead", [-600.0, -31.0, 0.0, 600.0])
async def test_a_host_is_present_and_silent_whatever_its_clock_says(
    journal: Journal, tmp_path: Path, clock: SetClock, ahead: float
) -> None:
    clock.ahead = ahead
    await Liveness(journal, HOST).beat()
    clock.ahead = 0.0
    assert await is_present(journal, HOST)
    assert await heartbeat_ages(journal) == {HOST: pytest.approx(await heartbeat_age(journal, HOST), abs=5)}
    let_pass(tmp_path, LIVENESS_SECONDS + 1)
    assert not await is_present(journal, HOST)


async def test_a_host_whose_clock_is_set_back_stays_present(
    journal: Journal, tmp_path: Path, clock: SetClock
) -> None:
    clock.ahead = 600.0
    for _ in range(2):
        await Liveness(journal, HOST).beat()
    clock.ahead = 0.0
    let_pass(tmp_path, LIVENESS_SECONDS + 1)
    await Liveness(journal, HOST).beat()
    assert await is_present(journal, HOST)
    assert len(await journal.keys(f"~present/{HOST}/")) == 2


async def test_settings_that_living_workers_read_otherwise_are_named(
    journal: Journal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "clotho.yaml"
    file.write_text("worker: {drain_seconds: 60, activity_pollers: 3}\nrun: {memory_mb: 512}\n")
    read = read_settings_file()
    assert "60" not in read.digests.values()
    await Liveness(journal, HOST, read).beat()
    await Liveness(journal, "adapter").beat()
    assert await settings_notice(journal) is None
    file.write_text(
        "worker: {activity_pollers: 4}\nplugins: {s3: {endpoint: http://s3}}\nrun: {memory_mb: 1024}\n"
    )
    changed = "plugins.s3.endpoint, worker.activity_pollers, worker.drain_seconds"
    told = f"the workers have older settings than clotho.yaml ({changed}): start them again"
    assert await settings_notice(journal) == told
    monkeypatch.chdir("/")
    assert await settings_notice(journal) is None, "the workers read another file"
    monkeypatch.chdir(tmp_path)
    await Liveness(journal, HOST, read_settings_file()).beat()
    assert await settings_notice(journal) is None
    file.unlink()
    assert (await settings_notice(journal) or "").startswith("the workers have older settings")
    let_pass(tmp_path, LIVENESS_SECONDS + 1)
    assert await settings_notice(journal) is None, "they are gone"
