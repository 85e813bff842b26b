"""Lives of an adapter on a failing host, as a test begins and follows them."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from clotho.processes.parent_death import with_parent_death_signal
from tests.sandbox.injection import Site
from tests.support import PATIENCE_SECONDS


@dataclass
class Life:
    """One process of the adapter."""

    log: Path
    sites: Path
    begun: "asyncio.Future[int]" = field(default_factory=lambda: asyncio.get_running_loop().create_future())
    """The process's id."""
    ended: "asyncio.Future[int]" = field(default_factory=lambda: asyncio.get_running_loop().create_future())

    async def status(self) -> int:
        """The exit status, once it has ended."""
        return await asyncio.wait_for(asyncio.shield(self.ended), PATIENCE_SECONDS)

    async def terminate(self) -> None:
        """Tell it to stop, unless it has ended."""
        pid = await asyncio.wait_for(asyncio.shield(self.begun), PATIENCE_SECONDS)
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)

    @property
    def said(self) -> str:
        return self.log.read_text(errors="replace")

    @property
    def calls(self) -> list[Site]:
        """To the host, that it made; known once it has ended."""
        return [Site(*pair) for pair in json.loads(self.sites.read_text())["seen"]]

    @property
    def fired(self) -> bool:
        """Whether the call that was to fail was made."""
        return bool(json.loads(self.sites.read_text())["fired"])


class Forks:
    """Lives of the adapter."""

    def __init__(self, process: asyncio.subprocess.Process, folder: Path) -> None:
        self._process, self._folder = process, folder
        self._lives: list[Life] = []

    async def live(
        self, argv: list[str], variables: dict[str, str], target: Site | None = None, number: int = 0
    ) -> Life:
        """Begin a life in which `target` fails with the error `number`."""
        count = len(self._lives)
        life = Life(self._folder / f"life-{count}.log", self._folder / f"life-{count}.json")
        self._lives.append(life)
        order = {
            "log": str(life.log),
            "sites": str(life.sites),
            "argv": argv,
            "variables": variables,
            "target": [target.call, target.place] if target else None,
            "errno": number,
        }
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(order).encode() + b"\n")
        return life

    async def follow(self) -> None:
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            number, pid, status = json.loads(line)
            life = self._lives[number]
            if status is None:
                life.begun.set_result(pid)
            else:
                life.ended.set_result(status)


@asynccontextmanager
async def forks(folder: Path) -> AsyncIterator[Forks]:
    command = with_parent_death_signal([sys.executable, "-m", "tests.atropos.failing_host"])
    process = await asyncio.create_subprocess_exec(
        *command, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    made = Forks(process, folder)
    following = asyncio.create_task(made.follow())
    try:
        yield made
    finally:
        process.kill()
        await process.wait()
        await following
