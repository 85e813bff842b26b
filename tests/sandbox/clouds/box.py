"""A cloud's machine on this one: a folder as its file system, and processes in namespaces of their own."""

import asyncio
import json
import os
import signal
from asyncio.subprocess import PIPE, Process
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

FOLDERS = ("home", "opt", "root", "run", "srv", "tmp", "var/tmp")
NAMESPACES = ("pid", "ipc", "uts", "net")
SYSTEM = ("--ro-bind", "/usr", "/usr", "--ro-bind", "/etc", "/etc", "--dev", "/dev", "--proc", "/proc")
LINKS = ("bin", "lib", "lib64", "sbin")
VARIABLES = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root"}


class Box:
    """Needs root. All its processes end with the first one."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._first: Process | None = None
        self._pid = 0
        self._started = asyncio.Event()
        self._destroyed = False

    async def start(self) -> None:
        for name in FOLDERS:
            (self.root / name).mkdir(parents=True)
        (self.root / "tmp").chmod(0o1777)
        links = [part for name in LINKS for part in ("--symlink", f"usr/{name}", f"/{name}")]
        reading, writing = os.pipe()
        self._first = await asyncio.create_subprocess_exec(
            "bwrap",
            *(f"--unshare-{name}" for name in NAMESPACES),
            *("--die-with-parent", "--cap-add", "ALL", "--bind", str(self.root), "/", *SYSTEM, *links),
            *("--info-fd", str(writing), "--", "sh", "-c", "echo started; exec sleep infinity"),
            pass_fds=(writing,),
            env=VARIABLES,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=PIPE,
        )
        os.close(writing)
        assert self._first.stdout is not None
        assert await self._first.stdout.readline() == b"started\n"  # its file system is there from then on
        with os.fdopen(reading) as told:
            self._pid = json.load(told)["child-pid"]
        self._started.set()

    @property
    def alive(self) -> bool:
        """Also while it starts."""
        return not self._destroyed and (self._first is None or self._first.returncode is None)

    async def command(self, arguments: Sequence[str]) -> list[str]:
        """The command of this machine that runs `arguments` in the box."""
        await self._started.wait()
        return ["nsenter", "-t", str(self._pid), "-m", "-p", "-i", "-u", "-n", "-r", "-w", "--", *arguments]

    async def run(self, arguments: Sequence[str], variables: Mapping[str, str] = {}) -> Process:
        return await asyncio.create_subprocess_exec(
            *await self.command(arguments),
            stdin=PIPE,
            stdout=PIPE,
            stderr=PIPE,
            env={**VARIABLES, **variables},
        )

    def path(self, inside: str) -> Path:
        return self.root / inside.removeprefix("/")

    async def destroy(self) -> None:
        self._destroyed = True
        if self._first is not None and self._first.returncode is None:
            with suppress(ProcessLookupError):
                if self._started.is_set():
                    os.kill(self._pid, signal.SIGKILL)
                self._first.kill()
            await self._first.wait()
        removing = await asyncio.create_subprocess_exec("rm", "-rf", self.root)  # however deep it is
        await removing.wait()


Failure = Literal["too many", "outage", "wrong key"]


@dataclass(frozen=True)
class Made:
    """A machine, as its cloud has it."""

    box: Box
    lifetime_seconds: float
    memory_mb: int
    network: bool | set[str]
    """Whether there is one; the domains and networks where it is to these alone."""


class CloudServer(Protocol):
    @property
    def builds(self) -> int:
        """Images that were asked for."""

    def running(self, name: str) -> list[Made]:
        """The machines of a name."""

    def fail_creations(self, failure: Failure, times: int) -> None:
        """Refuse the next ones."""
