"""`clotho doctor` and `clotho status` where something doesn't answer, or is full: one line a cause, and soon."""

import asyncio
import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from clotho.cli.doctor import disks
from clotho.cli.doctor.disks import disk_findings
from clotho.embedded.temporal_binary import THREE_WAYS
from clotho.journal import Journal
from clotho.journal.folder import FilesystemStore
from tests.cli.command import clotho
from tests.sandbox.conftest import needs_root
from tests.support import PATIENCE_SECONDS


@pytest.fixture
async def silent_server() -> AsyncIterator[str]:
    """The address of what takes connections, and says nothing."""
    server = await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", 0)
    yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    server.close()


@pytest.fixture
def store(tmp_path: Path) -> Path:
    place = tmp_path / "state" / "store"
    Journal(FilesystemStore(place))
    return place


@pytest.fixture
def full_disk(tmp_path: Path) -> Iterator[Path]:
    """A store beside a development server's database, on a disk without room."""
    place = tmp_path / "state"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(place)], check=True)
    Journal(FilesystemStore(place / "store"))
    (place / "temporal.db").touch()
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


async def test_a_temporal_server_that_gives_no_answer_is_one_finding(store: Path, silent_server: str) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        answer = await clotho("doctor", "--store", str(store), "--temporal", silent_server)
    assert answer.status == 1
    assert answer.output.count("Temporal") == answer.output.count("Temporal: no answer") == 1
    assert "! Temporal: no answer within 3 s\n    → see to its health: the server's process" in answer.output
    assert "disk of the store and sandboxes" in answer.output or "disk of the store (" in answer.output


async def test_the_status_of_runs_waits_for_no_server(store: Path, silent_server: str) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        answer = await clotho("status", "--store", str(store), "--temporal", silent_server)
    assert answer.status == 0
    assert "what runs or failed is not shown: Temporal gives no answer within 10 s" in answer.output


@needs_root
async def test_a_full_disk_is_one_finding_that_blames_no_worker(full_disk: Path, silent_server: str) -> None:
    place = ("--store", str(full_disk / "store"), "--temporal", silent_server)
    examined = await clotho("doctor", *place)
    assert f"! disk of the store and Temporal's database ({full_disk}/store): 0.0 GiB free" in examined.output
    assert "it is full\n    → free some space: what is written there waits or fails" in examined.output
    assert "no worker" not in examined.output
    shown = await clotho("status", *place)
    assert "what runs or failed is not shown: disk of the store and Temporal's database" in shown.output
    assert "worker" not in shown.output


async def test_without_a_server_it_is_said_what_is_missing_to_get_one(store: Path, tmp_path: Path) -> None:
    variables = {"PATH": "/nonexistent", "HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path)}
    answer = await clotho("doctor", "--store", str(store), "--temporal", "127.0.0.1:9", environment=variables)
    assert "Temporal: no Temporal server answers at 127.0.0.1:9" in answer.output
    assert THREE_WAYS in answer.output


def test_a_disk_has_one_finding_whatever_is_on_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    used = {"the store": tmp_path / "store", "sandboxes": tmp_path / "not" / "there"}
    (enough,) = disk_findings(used)
    assert enough.fact.startswith(f"disk of the store and sandboxes ({tmp_path}): ")
    assert enough.advice is None
    monkeypatch.setattr(disks, "LOW_BYTES", 1 << 60)
    (low,) = disk_findings(used)
    assert (low.advice, low.is_full) == ("free some space before it is full", False)
    monkeypatch.setattr(disks, "SPACE_BYTES", 1 << 60)
    (full,) = disk_findings(used)
    assert full.is_full and "it is full" in full.fact
