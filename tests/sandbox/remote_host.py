"""A sandbox host over the pipes of a process on this machine."""

import asyncio
import sys
from asyncio.subprocess import PIPE, Process
from pathlib import Path

from clotho.errors import ClothoError, SandboxUnavailable
from clotho.plugins.ssh.remote.backend import RemoteBackend
from clotho.plugins.ssh.remote.connection import Connection, Stream
from clotho.plugins.ssh.remote.instance import RemoteInstance
from clotho.sandbox.local.folders import SandboxFolder
from clotho.sandbox.supervised.control import ControlDirectory

folders: set[Path] = set()
"""Folders where hosts that are this machine have sandboxes."""


def control_of(sandbox: RemoteInstance) -> ControlDirectory:
    """The control directory, on this machine, of the supervisor that `sandbox` is reached through."""
    incarnation = sandbox.incarnation.rpartition("/")[2]
    every = (alive for folder in folders for alive in folder.glob("control/*/*/alive"))
    (found,) = (alive.parent for alive in every if alive.read_text().strip() == incarnation)
    record = SandboxFolder(found.parents[2], found.parent.name).read_record()
    return ControlDirectory(found, record.user if record else None)


class PipedHost:
    """Starts a server of the sandboxes in `folder` for every stream."""

    def __init__(self, folder: Path, *options: str) -> None:
        self._command = (sys.executable, "-m", "clotho.plugins.ssh.remote", str(folder), *options)
        self.started: list[Process] = []
        folders.add(folder)

    async def open(self) -> Connection:
        process = await asyncio.create_subprocess_exec(*self._command, stdin=PIPE, stdout=PIPE)
        self.started.append(process)
        assert process.stdin is not None and process.stdout is not None

        async def why_ended() -> ClothoError:
            return SandboxUnavailable(f"the server ended: {await process.wait()}")

        async def close() -> None:
            await process.wait()

        return await Connection(Stream(process.stdout, process.stdin, why_ended, close)).open()


def piped_backend(folder: Path) -> RemoteBackend:
    return RemoteBackend(("local",), PipedHost(folder).open)
