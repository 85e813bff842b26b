"""A host of a cell's own that sandboxes are made on through ssh: this machine, which can be killed for a while."""

import asyncio
import os
import shutil
import signal
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from clotho.plugins.demo import kill_processes
from clotho.plugins.ssh.address import SshHost
from tests.sandbox.ssh_host import SshServer


def can_be_started() -> bool:
    """Whether this machine and this user can have an ssh server of their own."""
    found = shutil.which("sshd") or Path("/usr/sbin/sshd").exists()
    return os.geteuid() == 0 and bool(found)


class SandboxHost:
    """Its ssh server, with files in `folder`; what runs on it is told by the folder of its sandboxes."""

    def __init__(self, folder: Path) -> None:
        self._server = SshServer(folder)
        self.settings: SshHost = self._server.host("far")
        self.root = Path(self.settings.root)

    async def start(self) -> None:
        await asyncio.to_thread(self._server.__enter__)

    async def kill(self, sandboxes: Path, leases: Iterable[str]) -> None:
        """SIGKILL of the ssh server, of all that it serves, and of the sandboxes of `leases`; files stay."""
        await asyncio.to_thread(self._kill, sandboxes, tuple(leases))

    def _kill(self, sandboxes: Path, leases: tuple[str, ...]) -> None:
        self._server.vanish()
        while serving := list(self._serving()):
            for pid in serving:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        for lease in leases:
            kill_processes.kill_supervisors(sandboxes, lease)

    def _serving(self) -> Iterable[int]:
        """The processes that were started with its folder: servers of sandboxes, and what they start."""
        for process in Path("/proc").iterdir():
            if process.name.isdigit() and int(process.name) != os.getpid():
                with suppress(OSError):
                    if f"{self.root}/".encode() in (process / "cmdline").read_bytes():
                        yield int(process.name)


@asynccontextmanager
async def sandbox_host_in(folder: Path) -> AsyncIterator[SandboxHost]:
    """Nothing is served afterwards."""
    host = SandboxHost(folder / "sshd")
    await host.start()
    try:
        yield host
    finally:
        await host.kill(host.root, ())
