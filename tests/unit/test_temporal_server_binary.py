"""Where the Temporal binary comes from; a stand-in for `go` builds it."""

import asyncio
from pathlib import Path

import pytest

from clotho.embedded import temporal_binary as module
from clotho.embedded.temporal_binary import GO_PACKAGE, Unobtainable, binary_from
from clotho.errors import InvalidInput
from tests.support import PATIENCE_SECONDS


def program(path: Path, script: str) -> Path:
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stands for a machine that reaches a Go module proxy only."""

    async def unreachable(target: Path, announce: module.Announce) -> None:
        raise Unobtainable("the download failed")

    monkeypatch.setattr(module, "_download", unreachable)


@pytest.fixture
def go(tmp_path: Path) -> Path:
    """Installs a program, slowly, and notes that it was asked to."""
    return program(
        tmp_path / "go",
        f'echo "$@" >> {tmp_path}/asked; sleep 0.3; cp "$0" "$GOBIN/temporal"',
    )


async def test_order(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    cache.mkdir()
    cached, on_path = program(cache / "temporal", ""), program(tmp_path / "here", "")
    assert await binary_from(cache, on_path=on_path) == on_path
    assert await binary_from(cache) == cached


@pytest.mark.usefixtures("offline")
async def test_builds_once_for_callers_at_the_same_time(tmp_path: Path, go: Path) -> None:
    cache, lines = tmp_path / "cache", list[str]()
    found = await asyncio.gather(*(binary_from(cache, go=go, announce=lines.append) for _ in range(3)))
    assert set(found) == {cache / "temporal"}
    assert (tmp_path / "asked").read_text() == f"install -v {GO_PACKAGE}\n"
    assert len(lines) == 1
    assert GO_PACKAGE in lines[0]
    assert sorted(path.name for path in cache.iterdir()) == ["temporal", "temporal.lock"]


@pytest.mark.usefixtures("offline")
async def test_a_failed_build_says_so_and_leaves_nothing(tmp_path: Path) -> None:
    go = program(tmp_path / "go", "echo module proxy unreachable >&2; exit 1")
    with pytest.raises(InvalidInput, match=r"PATH.*TEMPORAL_ADDRESS.*Go.*module proxy unreachable"):
        await binary_from(tmp_path / "cache", go=go)
    assert [path.name for path in (tmp_path / "cache").iterdir()] == ["temporal.lock"]


@pytest.mark.usefixtures("offline")
async def test_no_way_left(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="no Go toolchain"):
        await binary_from(tmp_path / "cache")
    assert "\n" not in module.THREE_WAYS


@pytest.mark.usefixtures("offline")
async def test_a_cancelled_build_ends(tmp_path: Path) -> None:
    go = program(tmp_path / "go", f"echo $$ > {tmp_path}/pid; sleep 3600")
    build = asyncio.ensure_future(binary_from(tmp_path / "cache", go=go))
    pid = tmp_path / "pid"
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not pid.exists() or not pid.read_text().strip():
            await asyncio.sleep(0.02)
    build.cancel()
    with pytest.raises(asyncio.CancelledError):
        await build
    async with asyncio.timeout(PATIENCE_SECONDS):
        while _alive(int(pid.read_text())):
            await asyncio.sleep(0.02)


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z"
    except FileNotFoundError:
        return False
