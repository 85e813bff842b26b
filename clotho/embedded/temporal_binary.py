"""The `temporal` binary: from PATH, the cache, a download, or the Go toolchain."""

import asyncio
import fcntl
import os
import signal
import sys
import tempfile
from collections import deque
from collections.abc import Callable
from pathlib import Path

from temporalio.testing import WorkflowEnvironment

from clotho.config import cache_folder
from clotho.errors import InvalidInput
from clotho.escaping import truncate_middle
from clotho.host import program_on_path

GO_PACKAGE = "github.com/temporalio/cli/cmd/temporal@v1.5.1"
DOWNLOAD_SECONDS = 120.0
TELL_SECONDS = 15.0
KEPT_LINES = 20
"""Last lines of a build that tell why it failed."""
THREE_WAYS = (
    "there is no Temporal server: put `temporal` on PATH (https://docs.temporal.io/cli/setup-cli), or set"
    " TEMPORAL_ADDRESS to a server that runs, or install Go so that one can be built"
)

Announce = Callable[[str], None]


def to_stderr(line: str) -> None:
    sys.stderr.write(f"{line}\n")


class Unobtainable(Exception):
    """One way to a binary led nowhere."""


async def temporal_binary(announce: Announce = to_stderr) -> Path:
    """This machine's `temporal`; raises InvalidInput if there is none."""
    return await binary_from(
        cache_folder() / "bin",
        on_path=program_on_path("temporal"),
        go=program_on_path("go"),
        announce=announce,
    )


def obtainable_binary() -> str | None:
    """Where `temporal_binary` would find it, without fetching it; None where neither a program nor Go is here."""
    cached = cache_folder() / "bin" / "temporal"
    if (found := program_on_path("temporal") or (cached if _executable(cached) else None)) is not None:
        return str(found)
    return "a download, or a build with Go" if program_on_path("go") is not None else None


async def binary_from(
    cache: Path, *, on_path: Path | None = None, go: Path | None = None, announce: Announce = to_stderr
) -> Path:
    """The first of: `on_path`, the one in folder `cache`, a download, a build with `go`.

    A download or a build is kept in `cache`; processes that ask at the same time wait for one of them.
    Raises InvalidInput if there is none.
    """
    cached = cache / "temporal"
    if on_path is None and not _executable(cached):
        await _obtain(cached, go, announce)
    return on_path or cached


async def _obtain(target: Path, go: Path | None, announce: Announce) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.with_suffix(".lock").open("w") as lock:
        # in a thread: another process may hold the lock for as long as a build takes
        await asyncio.to_thread(fcntl.flock, lock, fcntl.LOCK_EX)
        if _executable(target):
            return
        try:
            await _download(target, announce)
        except Unobtainable as no_download:
            try:
                await _build(target, go, announce)
            except Unobtainable as no_build:
                raise InvalidInput(f"{THREE_WAYS}. Tried: {no_download}; {no_build}") from None


async def _download(target: Path, announce: Announce) -> None:
    """Download by the SDK; it starts the server, which is stopped at once."""
    announce("Downloading the Temporal server (once per user)")
    # beside the target: only within a file system does `replace` let it appear whole
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        try:
            server = await asyncio.wait_for(
                WorkflowEnvironment.start_local(download_dest_dir=folder), DOWNLOAD_SECONDS
            )
        except TimeoutError:
            raise Unobtainable(f"the download took more than {DOWNLOAD_SECONDS:.0f} s") from None
        except RuntimeError as error:
            raise Unobtainable(f"the download failed ({truncate_middle(str(error), 200)})") from None
        await server.shutdown()
        _only_program(Path(folder)).replace(target)


async def _build(target: Path, go: Path | None, announce: Announce) -> None:
    if go is None:
        raise Unobtainable("there is no Go toolchain to build it with")
    announce(
        f"Building the Temporal server with `go install {GO_PACKAGE}` (about 3 minutes on two cores, once per user)"
    )
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        build = await asyncio.create_subprocess_exec(
            # without cgo no C compiler is needed
            "env", "CGO_ENABLED=0", f"GOBIN={folder}", str(go), "install", "-v", GO_PACKAGE,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,
        )  # fmt: skip
        try:
            said = await _follow_build(build, announce)
        finally:
            if build.returncode is None:
                # go runs compilers of its own: all are in the session that it leads
                os.killpg(build.pid, signal.SIGKILL)
        if build.returncode != 0:
            raise Unobtainable(f"go install failed ({truncate_middle(' '.join(said.split()), 300)})")
        (Path(folder) / "temporal").replace(target)


async def _follow_build(build: asyncio.subprocess.Process, announce: Announce) -> str:
    """Tell now and then how many packages are built; returns what was said last, once the build has ended."""
    assert build.stdout is not None
    loop, last = asyncio.get_running_loop(), deque[str](maxlen=KEPT_LINES)
    began = told = loop.time()
    packages = 0
    async for line in build.stdout:
        last.append(line.decode(errors="replace"))
        packages += 1
        if loop.time() - told >= TELL_SECONDS:
            told = loop.time()
            announce(f"  {packages:,} packages are built or fetched after {told - began:.0f} s")
    await build.wait()
    return "".join(last)


def _only_program(folder: Path) -> Path:
    return next(file for file in folder.iterdir() if _executable(file))


def _executable(path: Path) -> bool:
    return path.is_file() and os.access(path, os.X_OK)
