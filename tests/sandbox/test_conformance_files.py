import pytest

from clotho.errors import FileRefused
from clotho.identifiers.ids import job_key
from tests.sandbox.shell import Shell


async def content(shell: Shell, path: str, **more: str) -> bytes:
    found = await shell.sandbox.read_file(path, 50_000_000, **more)
    assert found.error is None
    assert found.size == len(found.content)
    return found.content


@pytest.mark.parametrize(
    "written", [b"", bytes(range(256)), b"x" * 20_000_000], ids=["empty", "binary", "large"]
)
async def test_what_is_written_is_read(shell: Shell, written: bytes) -> None:
    path = await shell.sandbox.write_file("some/new/folder/file", written)
    assert path == f"{shell.sandbox.workspace}/some/new/folder/file"
    assert await content(shell, path) == written


async def test_odd_names(shell: Shell) -> None:
    for name in ("a b", "é\n'\"$x", "x" * 255):
        await shell.sandbox.write_file(f"odd/{name}", name.encode())
        assert await content(shell, f"odd/{name}") == name.encode()


async def test_files_belong_to_the_sandbox_and_keep_their_mode(shell: Shell) -> None:
    await shell.sandbox.write_file("tool", b"#!/bin/sh\necho 1")
    assert await shell.text("stat -c %a tool; chmod 755 tool; [ -O tool ] && echo own") == "644\nown"
    await shell.sandbox.write_file("tool", b"#!/bin/sh\necho 2")
    assert await shell.text("./tool") == "2"


async def test_paths(shell: Shell) -> None:
    await shell.run("mkdir -p sub; cd sub", "paths")
    after = job_key("paths")
    assert await shell.sandbox.write_file("here", b"1", after) == f"{shell.sandbox.workspace}/sub/here"
    assert await shell.sandbox.write_file("../there", b"2", after) == f"{shell.sandbox.workspace}/there"
    assert await shell.sandbox.write_file("~/home", b"3", after) == f"{shell.sandbox.home}/home"
    assert (
        await shell.sandbox.write_file("/work/absolute", b"4", after) == f"{shell.sandbox.workspace}/absolute"
    )
    assert await shell.text("cat sub/here there ~/home absolute") == "1234"
    assert await content(shell, "here", after=after) == b"1"
    assert await content(shell, "/home/agent/home") == b"3"


async def test_what_cannot_be_read(shell: Shell) -> None:
    await shell.run("mkdir -p d; mkfifo fifo; ln -s nowhere dangling; ln -s loop loop; echo 123456 > big")
    errors = {
        "missing": "not_found",
        "big/below": "not_found",
        "": "not_found",
        "a\0b": "not_found",
        "d": "is_directory",
        "fifo": "not_regular",
        "/dev/zero": "not_regular",
        "dangling": "not_found",
        "loop": "not_regular",
        "/proc/self/environ": "not_regular",
    }
    for path, error in errors.items():
        assert (path, (await shell.sandbox.read_file(path, 1000)).error) == (path, error)
    large = await shell.sandbox.read_file("big", 6)
    assert (large.error, large.size) == ("too_large", 7)
    assert (await shell.sandbox.read_file("big", 7)).content == b"123456\n"


async def test_what_cannot_be_written(shell: Shell) -> None:
    await shell.run("mkdir -p d2; mkfifo fifo2; ln -s nowhere dangling2; touch file2")
    for path in (
        "d2",
        "d2/",
        "fifo2",
        "/dev/null",
        "dangling2",
        "file2/below",
        "",
        "/proc/self/comm",
        "/proc/x",
    ):
        with pytest.raises(FileRefused):
            await shell.sandbox.write_file(path, b"x")
    assert await shell.text("[ -p fifo2 ] && [ -L dangling2 ] && [ ! -e nowhere ] && ls -A d2") == ""


async def test_links_are_written_through(shell: Shell) -> None:
    await shell.run("mkdir -p target-dir; echo old > target; ln -s target link; ln -s target-dir link-dir")
    assert await shell.sandbox.write_file("link", b"new") == f"{shell.sandbox.workspace}/target"
    await shell.sandbox.write_file("link-dir/file", b"in it")
    assert await shell.text("cat target target-dir/file; [ -L link ] && [ -L link-dir ] && echo links") == (
        "newin itlinks"
    )


async def test_links_into_the_supervisor_lead_nowhere(shell: Shell) -> None:
    """A file verb runs in a child of the supervisor: /proc/self there must not be a way to what it holds."""
    forged = job_key("forged")
    await shell.run(
        "for n in $(seq 0 40); do ln -s /proc/self/fd/$n fd$n; done; ln -s /proc/self/cwd cwd; ln -s /proc/1/fd fds"
    )
    for n in range(41):
        for path in (f"fd{n}/c/{forged}/done", f"/proc/self/fd/{n}/alive", f"fd{n}", f"fds/{n}/alive"):
            assert (await shell.sandbox.read_file(path, 1000)).error is not None
            with pytest.raises(FileRefused):
                await shell.sandbox.write_file(path, b"exited 0 0\n")
    assert (await shell.sandbox.read_file("cwd/fd0", 10)).error is not None
