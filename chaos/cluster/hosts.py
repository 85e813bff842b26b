"""A host: a network namespace with a home, a name, a folder for sandboxes and a worker of its own."""

import asyncio
import os
import signal
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from chaos.cluster.network import Network
from chaos.disk import SmallDisk
from clotho import application
from clotho.config import settings_class
from clotho.plugins.demo.kill_processes import processes_below
from clotho.processes.child import ChildProcess
from clotho.sandbox.backend import SandboxBackend
from clotho.sandbox.registry import open_backend

SANDBOXES = "s"
"""Folder of a host's sandboxes."""
ROLES = "workflows,llm,tools"
DISK_MEGABYTES = 512
KILL_PAUSE_SECONDS = 0.05


@dataclass
class ClusterHost:
    number: int
    name: str
    network: Network
    folder: Path
    variables: Mapping[str, str]
    """Environment variables by which it finds the rest of the cluster."""
    clock: float = 0.0
    """Seconds by which its clock is ahead."""
    disk: SmallDisk | None = None
    """The disk of its sandboxes, where it is a small one."""
    worker: ChildProcess = field(init=False)

    def __post_init__(self) -> None:
        own = {
            "HOME": str(self.folder / "home"),
            "CLOTHO_HOST": self.name,
            "CLOTHO_SANDBOX__ROOT": str(self.sandbox_root),
            "CLOTHO_WORKER__DRAIN_SECONDS": "20",
        }
        # Monotonic clocks are left alone, as they are where a machine's date is wrong.
        unset = ("-u", "XDG_CACHE_HOME", "FAKETIME_DONT_FAKE_MONOTONIC=1")
        assignments = [f"{name}={value}" for name, value in {**self.variables, **own}.items()]
        skewed = ["faketime", "-f", f"{self.clock:+g}s"] if self.clock else []
        command = ["ip", "netns", "exec", self.network.namespace(self.number), "env", *unset, *assignments]
        command += [*skewed, *application.command("worker", "--roles", ROLES, "--processes", "1")]
        self.worker = ChildProcess(command, self.folder / "worker.log")

    @property
    def sandbox_root(self) -> Path:
        return self.folder / SANDBOXES

    def named(self, name: str) -> "ClusterHost":
        """A copy of the host with another name, on the same folder and network."""
        return replace(self, name=name)

    async def start(self) -> None:
        (self.folder / "home").mkdir(parents=True, exist_ok=True)
        self.folder.chmod(0o711)
        await self.worker.start()

    async def kill(self) -> None:
        """SIGKILL to everything of it, its sandboxes too, until nothing is left: its power is cut."""
        while processes := await asyncio.to_thread(self._processes):
            for process in processes:
                with suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)
            await asyncio.sleep(KILL_PAUSE_SECONDS)
        await self.worker.kill()

    def sandboxes(self, store_identity: str) -> SandboxBackend:
        settings = settings_class()(sandbox={"root": self.sandbox_root})
        return open_backend(settings, settings.sandbox.folder_of(store_identity))

    async def left_over(self, store_identity: str) -> list[str]:
        """Sandboxes, and processes of sandboxes, that are still there."""
        held = [f"{self.name}: {held.lease}" for held in await self.sandboxes(store_identity).leases()]
        return held + await asyncio.to_thread(processes_below, self.sandbox_root)

    def _processes(self) -> set[int]:
        own = os.stat(f"/run/netns/{self.network.namespace(self.number)}").st_ino
        found = {int(process.split()[1]) for process in processes_below(self.sandbox_root)}
        for entry in Path("/proc").iterdir():
            with suppress(OSError, ValueError):
                process = int(entry.name)
                if (entry / "ns" / "net").stat().st_ino == own:
                    found.add(process)
        return found
