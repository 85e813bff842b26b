"""Links that the agent leaves for its verifier to follow."""

from pathlib import Path

import pytest

from clotho.errors import WorkspaceRefused
from clotho.sandbox.local.backend import LocalBackend
from tests.sandbox.conftest import Fresh
from tests.sandbox.shell import Shell
from tests.sandbox.verifying import looking

HIDDEN = {"expected.txt": b"42\n"}
LINKS = {
    "to the name that hidden files once had": "ln -s /verifier/expected.txt count.txt",
    "to the directory that the verifier is in": "ln -s /proc/self/cwd/expected.txt count.txt",
    "to what the verifier has open": "ln -s /proc/self/fd/3 count.txt",
    "up and out": "ln -s ../../../../etc/passwd count.txt",
    "of a folder": "ln -s /etc deeper; ln -s deeper/passwd count.txt",
    "in many steps": "ln -s /etc/passwd a; ln -s a b; ln -s b c; ln -s c count.txt",
    "by way of the home": "ln -s /etc/passwd ~/p; ln -s ~/p count.txt",
}


@pytest.mark.attack("verification", "a link out of the workspace, read by the verifier's file verbs")
@pytest.mark.parametrize("link", LINKS)
async def test_a_link_is_not_followed_out_of_the_agents_folders(
    local: LocalBackend, isolated: Shell, lease: str, link: str
) -> None:
    await isolated.run(LINKS[link])
    ctx = looking(local, lease, HIDDEN, directory="$CLOTHO_HIDDEN_FILES")
    assert await ctx.read_bytes("/work/count.txt") is None
    assert await ctx.read_bytes("/work/../work/./count.txt") is None
    assert await ctx.read_bytes("../../work/count.txt") is None
    assert "content" not in await ctx.read_file("/work/count.txt")
    assert await ctx.read_bytes("expected.txt") == b"42\n"


@pytest.mark.attack("verification", "a link out of the workspace, read by the verifier's file verbs")
async def test_a_refusal_says_why(local: LocalBackend, isolated: Shell, lease: str) -> None:
    await isolated.run("ln -s /etc/passwd out; ln -s /etc passage")
    ctx = looking(local, lease)
    for name in ("out", "/work/out", "passage/passwd"):
        assert "leads out of the agent's folders" in (await ctx.read_file(name))["error"]
    with pytest.raises(WorkspaceRefused, match="outside"):
        await ctx.write_bytes("passage/new", b"x")


@pytest.mark.attack("verification", "a link into the hidden files, followed by the verifier's shell")
async def test_hidden_files_have_a_name_that_no_link_can_have(
    local: LocalBackend, isolated: Shell, lease: str
) -> None:
    """Guesses: the name that they once had, and every name that the agent can see or find out."""
    await isolated.run(
        "ln -s /verifier/expected.txt count.txt; ls -d / /.[!.]* > seen; mount >> seen; env >> seen"
    )
    ctx = looking(local, lease, HIDDEN)
    assert (await ctx.terminal("cat count.txt; ls -d /verifier"))["exit_code"] != 0
    hidden = await ctx.hidden_files()
    assert len(hidden) > 32 and (await ctx.terminal(f"cat {hidden}/expected.txt"))["output"] == "42\n"
    seen = (await ctx.read_bytes("seen") or b"").decode()
    assert hidden not in seen and hidden.split("/")[1] not in seen
    later = looking(local, lease, HIDDEN, epoch=1)
    assert await later.hidden_files() != hidden
    assert (await later.terminal(f"ls {hidden}"))["exit_code"] != 0


async def test_a_retry_in_an_epoch_finds_them_where_they_were(
    local: LocalBackend, isolated: Shell, lease: str, folder: Path
) -> None:
    first = await looking(local, lease, HIDDEN).hidden_files()
    again = looking(LocalBackend(folder / "sandboxes-local"), lease, HIDDEN)
    assert await again.hidden_files() == first


async def test_links_among_the_agents_own_folders_are_followed(
    local: LocalBackend, isolated: Shell, lease: str
) -> None:
    await isolated.run(
        "echo 1 > ~/a; ln -s ~/a one; echo 2 > /tmp/b; ln -s /tmp two; ln -s two/b three; ln -s one four"
    )
    ctx = looking(local, lease, HIDDEN)
    assert await ctx.read_bytes("one") == b"1\n"
    assert await ctx.read_bytes("two/b") == await ctx.read_bytes("three") == b"2\n"
    await ctx.write_bytes("four", b"4")
    assert await ctx.read_bytes("~/a") == b"4"
    assert (await ctx.read_bytes("/etc/passwd") or b"").startswith(b"root:")
    assert await ctx.read_bytes("/bin/sh") is not None


@pytest.mark.attack("verification", "a device, a FIFO or a directory in place of a file that is read")
@pytest.mark.parametrize(
    "make", ["mkfifo", "mkdir", "ln -s loop", "ln -s nowhere", "ln -s /dev/zero", "ln -s /dev/tty"]
)
async def test_what_is_no_file_is_none(local: LocalBackend, isolated: Shell, lease: str, make: str) -> None:
    await isolated.run(f"{make} loop")
    ctx = looking(local, lease)
    assert await ctx.read_bytes("loop") is None


@pytest.mark.attack("verification", "a file that the verifier must write, made impossible to write")
@pytest.mark.parametrize(
    "spoil",
    [
        "mkdir -p test.py/x",
        "mkfifo test.py",
        "ln -s test.py test.py",
        "ln -s /etc/passwd test.py",
        "ln -s nowhere test.py",
    ],
)
async def test_a_spoilt_place_is_the_agents_doing(
    local: LocalBackend, isolated: Shell, lease: str, spoil: str
) -> None:
    await isolated.run(spoil)
    ctx = looking(local, lease)
    with pytest.raises(WorkspaceRefused):
        await ctx.write_bytes("/work/test.py", b"x")


@pytest.mark.attack("verification", "a file too large for the verifier to read")
async def test_a_huge_file_is_the_agents_doing(local: LocalBackend, fresh: Fresh, lease: str) -> None:
    await (await fresh(disk_mb=3000)).run("truncate -s 2G answer.txt")
    ctx = looking(local, lease)
    with pytest.raises(WorkspaceRefused, match="larger"):
        await ctx.read_bytes("/work/answer.txt")
