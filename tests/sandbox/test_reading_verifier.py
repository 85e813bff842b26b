"""A verifier that only reads what the agent left: no process is started for it before its first command."""

from pathlib import Path

import pytest

from clotho.errors import SandboxLost, WorkspaceRefused
from clotho.sandbox.backend import JobState
from clotho.sandbox.local.backend import LocalBackend
from tests.sandbox.conftest import Fresh, needs_root
from tests.sandbox.shell import Shell
from tests.sandbox.verifying import looking


def instances(folder: Path) -> set[Path]:
    """The control directories of all verifiers' instances."""
    return set(folder.glob("sandboxes-local/control/*/verifier-*"))


async def test_the_agents_files_are_read_after_its_processes_have_ended(
    isolated: Shell, local: LocalBackend, lease: str, folder: Path
) -> None:
    before = instances(folder)
    await isolated.run(
        "echo 1 > score; (setsid sh -c 'while :; do date +%N >> ticking; done' &) 2> /dev/null"
    )
    await isolated.run("until [ -s ticking ]; do sleep 0.01; done")
    session = isolated.job("sleep 600", session="server")
    await isolated.sandbox.start(session)
    ctx = looking(local, lease, {"answer": b"42"})
    assert await ctx.read_bytes("/work/score") == b"1\n"
    assert (await isolated.ended(session.key)).state is JobState.KILLED
    assert await ctx.read_bytes("ticking") == await ctx.read_bytes("/work/ticking") != b""
    with pytest.raises(SandboxLost):
        await isolated.run("true")
    assert await ctx.read_bytes("~/none") is None
    assert instances(folder) == before, "nothing was started"
    assert await ctx.read_bytes(f"{await ctx.hidden_files()}/answer") == b"42"
    assert len(instances(folder) - before) == 1
    assert (await ctx.terminal("cat score; echo 0 > score"))["output"].strip() == "1"
    assert await ctx.read_bytes("score") == b"0\n", "of the instance that the command ran in"


async def test_what_is_read_is_refused_as_after_a_command(
    isolated: Shell, local: LocalBackend, lease: str
) -> None:
    plants = (
        "ln -s /etc/passwd out; ln -s ../home in; mkfifo pipe; head -c 5000 /dev/zero > large; "
        "mkdir closed; echo 1 > closed/score; chmod 0 closed; echo 1 > shut; chmod 0 shut"
    )
    await isolated.run(plants)
    names = ("out", "in", "pipe", "closed/score", "shut", "/etc/passwd", "/proc/1/environ", "..", "a\0b")
    found = {}
    for first in ("nothing", "a command"):
        ctx = looking(local, lease)
        if first == "a command":
            await ctx.terminal("true")
        found[first] = [await ctx.read_bytes(name) for name in names]
        with pytest.raises(WorkspaceRefused, match="large is larger than 100 bytes"):
            await ctx.read_bytes("large", 100)
    assert found["nothing"] == found["a command"]


async def test_an_epoch_that_is_over_reads_no_more(isolated: Shell, local: LocalBackend, lease: str) -> None:
    await isolated.run("echo 1 > score")
    assert await looking(local, lease).read_bytes("score") == b"1\n"
    await looking(local, lease, epoch=1).terminal("echo 2 > score")
    with pytest.raises(SandboxLost, match="gone on to epoch 1"):
        await looking(local, lease).read_bytes("score")
    assert await looking(local, lease, epoch=1).read_bytes("score") == b"2\n"


@needs_root
async def test_a_full_disk_keeps_no_file_from_being_read(
    fresh: Fresh, local: LocalBackend, lease: str
) -> None:
    shell = await fresh(disk_mb=32)
    await shell.run("echo 1 > score; cat /dev/zero > filled; cat /dev/zero > ~/filled; true")
    assert await looking(local, lease).read_bytes("score") == b"1\n"
