"""Files that a policy makes larger, or less readable, than what the worker was told: read in bounded pieces."""

import asyncio
import resource
from collections.abc import AsyncIterator
from contextlib import nullcontext
from pathlib import Path

import pytest

from clotho.errors import WorkspaceRefused
from clotho.sandbox.backend import JobState
from clotho.sandbox.local.backend import LocalBackend
from clotho.sandbox.supervised.layout import PathUnseen
from tests.sandbox.conftest import BACKENDS, LOCAL, SPECS, needs_root
from tests.sandbox.shell import Shell
from tests.sandbox.tool_calls import Calls
from tests.sandbox.verifying import looking
from tests.support import PATIENCE_SECONDS

WRITER = "setsid sh -c 'until [ -e go ]; do sleep 0.05; done; {}; touch extended' & echo hello"
MOST_GROWTH_MB = 100


def peak_mb() -> int:
    """Of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10


@pytest.fixture(params=LOCAL)
async def target(request: pytest.FixtureRequest, folder: Path, lease: str) -> AsyncIterator[Shell]:
    backend = BACKENDS[request.param](folder / f"sandboxes-{request.param}")
    yield Shell(await backend.create(lease, SPECS[request.param].model_copy(update={"disk_mb": 1000})))
    await backend.destroy(lease)


@pytest.mark.attack("sandbox", "an output file that is extended to 50 GB after its command has ended")
async def test_no_more_of_an_output_is_read_than_was_measured(target: Shell) -> None:
    ended = await target.run(WRITER.format("truncate -s 50G /proc/self/fd/1"), "extended")
    assert (ended.state, ended.output) == (JobState.EXITED, b"hello\n")
    await target.run("touch go; until [ -e extended ]; do sleep 0.05; done")
    before = peak_mb()
    assert await target.sandbox.output(target.job("", "extended").key) == b"hello\n"
    assert peak_mb() - before < MOST_GROWTH_MB


@pytest.mark.attack("sandbox", "an output file without read permission")
async def test_an_output_file_is_read_whatever_its_mode(target: Shell) -> None:
    call = Calls(target.sandbox)
    assert (await call("terminal", command="echo hello; chmod 0 /proc/self/fd/1 2>&-"))["output"] == "hello\n"


@pytest.mark.attack("sandbox", "a sparse file of 190 MB, read by the verifier and by read_file")
@needs_root
async def test_a_sparse_file_takes_no_memory_of_the_worker(
    isolated: Shell, local: LocalBackend, lease: str
) -> None:
    await isolated.run("truncate -s 190M big")
    before = peak_mb()
    assert "Over" in (await Calls(isolated.sandbox)("read_file", path="/work/big"))["error"]
    with pytest.raises(WorkspaceRefused, match="larger"):
        await looking(local, lease).read_bytes("/work/big")
    assert peak_mb() - before < MOST_GROWTH_MB


@pytest.mark.attack("sandbox", "a workspace whose list of files has 60 MB")
async def test_a_list_of_files_is_bounded_and_tells_all_of_them_apart(target: Shell) -> None:
    deep = "n=$(printf %0200d); for i in $(seq 200); do mkdir $n; cd $n; done; seq 1500 | xargs touch"
    assert (await target.run(deep)).code == 0
    before = peak_mb()
    first = await target.sandbox.manifest()
    await target.run(f"{deep.partition('; seq')[0].replace('mkdir $n; ', '')}; touch -- z-the-last")
    second = await target.sandbox.manifest()
    assert first is not None and second is not None
    assert len(first.listing) <= 16 << 20 and first.listing.endswith(b"\0")
    assert first.digest != second.digest
    assert peak_mb() - before < MOST_GROWTH_MB


@pytest.mark.attack("sandbox", "names and links that no system call takes, for every file tool")
@pytest.mark.parametrize(
    "path", ["x" * 300, "y/" * 3000, "loop", "file/below", "~/" + "z" * 5000, "/work/" + "ä" * 200]
)
async def test_a_path_that_nothing_takes_is_answered_at_once(
    request: pytest.FixtureRequest, target: Shell, path: str
) -> None:
    """In place of an outage that is tried again for as long as the call's time lasts."""
    await target.run("ln -sf loop loop; touch file")
    call = Calls(target.sandbox)
    # The search is a command. Without isolation, one that names /work is refused; the activity tells the model.
    refused = request.node.callspec.params["target"] == "bare" and path.startswith("/work")
    async with asyncio.timeout(PATIENCE_SECONDS):
        assert (await call("read_file", path=path))["error"]
        assert (await call("write_file", path=path, content="x"))["error"]
        assert (await call("patch", mode="replace", path=path, old_string="a", new_string="b"))["error"]
        with pytest.raises(PathUnseen) if refused else nullcontext():
            assert (await call("search_files", pattern="x", path=path)).keys() & {"error", "total_count"}
        shown = await call("terminal", command="pwd", workdir=path)
        assert shown.get("error") or shown["exit_code"] == 126
        assert (await call("terminal", command="pwd"))["exit_code"] == 0
