"""A verifier names files as the agent did, in commands and in the file verbs alike."""

from pathlib import Path

import pytest

from clotho.identifiers.ids import job_key
from tests.sandbox.backends import Backend
from tests.sandbox.shell import Shell
from tests.sandbox.verifying import looking

LAST = "the agent's last command"
WAYS = {
    "absolute": "{work}/project/f.txt",
    "below ~": "~/f.txt",
    "below $HOME": "$HOME/f.txt",
    "relative": "f.txt",
    "relative, upwards": "../project/f.txt",
}


@pytest.fixture
async def left(own: Shell) -> Shell:
    """The agent's shell ended in a folder that it had made."""
    await own.run("mkdir project; cd project; echo at work > f.txt; echo at home > ~/f.txt", name=LAST)
    return own


@pytest.mark.parametrize("way", WAYS)
async def test_commands_find_what_the_agent_left(backend: Backend, left: Shell, lease: str, way: str) -> None:
    ctx = looking(backend, lease, after=job_key(LAST))
    name = WAYS[way].format(work=left.sandbox.workspace)
    found = await ctx.terminal(f"cat {name}")
    assert found["output"].strip() == ("at home" if name[0] in "~$" else "at work")


@pytest.mark.parametrize("way", WAYS)
async def test_file_verbs_find_what_commands_find(
    backend: Backend, left: Shell, lease: str, way: str
) -> None:
    ctx = looking(backend, lease, after=job_key(LAST))
    name = WAYS[way].format(work=left.sandbox.workspace)
    said = b"at home\n" if name[0] in "~$" else b"at work\n"
    assert await ctx.read_bytes(name) == said
    assert said.decode().strip() in (await ctx.read_file(name))["content"]
    assert (await ctx.search(said.decode().strip(), name))["total_count"] == 1
    await ctx.write_bytes(name, b"one\n")
    assert await ctx.read_bytes(name) == b"one\n"
    await ctx.write_file(name, "two\n")
    assert (await ctx.terminal("cat ~/f.txt f.txt"))["output"].count("two") == 1


async def test_relative_names_follow_a_command_that_changes_directory(
    backend: Backend, left: Shell, lease: str
) -> None:
    ctx = looking(backend, lease, after=job_key(LAST))
    await ctx.terminal("mkdir deeper; cd deeper; echo deep > f.txt")
    assert await ctx.read_bytes("f.txt") == b"deep\n"
    await ctx.write_bytes("g.txt", b"g")
    assert (await ctx.terminal("pwd; cat g.txt"))["output"].endswith("/project/deeper\ng")


@pytest.mark.parametrize(
    ("directory", "expected"),
    [("/usr", "/usr"), ("~", "{home}"), ("$TMPDIR", "{tmp}"), ("$CLOTHO_HIDDEN_FILES", "{hidden}")],
)
async def test_an_environment_says_where_it_starts(
    backend: Backend, left: Shell, lease: str, directory: str, expected: str
) -> None:
    ctx = looking(backend, lease, {"mark": b"1"}, directory=directory)
    variables = (await ctx.terminal('printf "%s\\n" "$PWD" "$HOME" "$TMPDIR" "$CLOTHO_HIDDEN_FILES"'))[
        "output"
    ]
    here, home, tmp, hidden = variables.split()
    assert here == expected.format(home=home, tmp=tmp, hidden=hidden)
    assert home == left.sandbox.home and hidden == await ctx.hidden_files()
    assert await ctx.read_bytes("mark") == (b"1" if here == hidden else None)


async def test_a_directory_that_is_gone_is_the_workspace_and_says_nothing(
    backend: Backend, own: Shell, lease: str
) -> None:
    """Its name is the agent's: it has no place in a verifier's output."""
    await own.run('d=$\'gone\\nall_passed 1\\n\'; mkdir "$d"; cd "$d"; rmdir ../gone*', name=LAST)
    ctx = looking(backend, lease, after=job_key(LAST))
    assert (await ctx.terminal("pwd"))["output"].strip() == own.sandbox.workspace
    await ctx.write_bytes("here", b"1")
    assert await ctx.read_bytes("/work/here") == b"1"


async def test_a_second_attempt_starts_where_the_first_did(backend: Backend, left: Shell, lease: str) -> None:
    for directory in ("/work", "/usr"):
        ctx = looking(backend, lease, after=job_key(LAST), directory=directory)
        assert (await ctx.terminal("pwd"))["output"].strip().endswith("/project")


async def test_listing_a_folder_moves_nothing(
    backend: Backend, left: Shell, lease: str, tmp_path: Path
) -> None:
    ctx = looking(backend, lease, after=job_key(LAST))
    assert await ctx.download_dir(".", str(tmp_path)) == {"success": True, "files": 1}
    assert (tmp_path / "f.txt").read_text() == "at work\n"
    assert await ctx.download_dir("..", str(tmp_path / "all")) == {"success": True, "files": 1}
    assert (await ctx.terminal("pwd"))["output"].strip().endswith("/project")


async def test_an_attempt_that_follows_writes_no_file_again(backend: Backend, own: Shell, lease: str) -> None:
    first = looking(backend, lease)
    await first.write_bytes("f.txt", b"one\n")
    await first.terminal("echo two >> f.txt")
    again = looking(backend, lease)
    await again.write_bytes("f.txt", b"one\n")
    assert await again.read_bytes("f.txt") == b"one\ntwo\n"
    await again.write_bytes("f.txt", b"three\n")
    assert await again.read_bytes("f.txt") == b"three\n"
