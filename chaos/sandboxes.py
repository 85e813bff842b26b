"""A cell's sandboxes as the host sees them: what ran in them, how they die, and what is left at the end."""

import asyncio
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from chaos.containers.engine import PodmanEngine
from chaos.stage import Stage, is_part_of, sandbox_folder_of
from clotho.plugins.containers.folders import ContainerFolder
from clotho.plugins.demo import kill_processes
from clotho.plugins.demo.execution_markers import MARKS
from tests.cluster import Cluster


class Host(Protocol):
    """A stage, as far as its sandboxes need one."""

    cluster: Cluster

    @property
    def engine(self) -> PodmanEngine | None:
        """The engine of the sandboxes, where they are containers."""


async def leases_of(stage: Stage, rollout: str) -> list[str]:
    """Those of its children as well."""
    return [lease for lease in await held(stage) if is_part_of(lease, rollout)]


async def marks(stage: Stage, rollout: str, file: str = MARKS) -> Counter[str]:
    """Call -> how often it has run so far, in the sandboxes that the rollout has now."""
    leases = await leases_of(stage, rollout)
    return await asyncio.to_thread(_marks_in_workspaces, stage.sandbox_folder, leases, Path(file).name)


def _marks_in_workspaces(root: Path, leases: list[str], name: str) -> Counter[str]:
    found: Counter[str] = Counter()
    for lease in leases:
        in_container = ContainerFolder.of_lease(root / "containers", lease).files
        for files in (kill_processes.files_of_lease(root, lease), in_container):
            with suppress(FileNotFoundError):
                found.update((files / "disk" / "work" / name).read_text().split())
    return found


async def kill_supervisors(stage: Stage, rollout: str) -> None:
    """SIGKILL to the PID 1 of every instance, with which the kernel ends the rest; files stay."""
    for lease in await leases_of(stage, rollout):
        await asyncio.to_thread(kill_processes.kill_supervisors, stage.sandbox_folder, lease)


async def destroy(stage: Stage, rollout: str) -> None:
    """Processes and files go, as with a machine that is lost."""
    await kill_supervisors(stage, rollout)
    backend = stage.cluster.sandboxes()
    for lease in await leases_of(stage, rollout):
        await backend.destroy(lease)


async def reaper_pass(stage: Host) -> None:
    """The pass that a host's worker makes every minute, made now."""
    await stage.cluster.reaper().look()


async def held(stage: Host) -> list[str]:
    """The leases of the sandboxes that are there."""
    return [held.lease for held in await stage.cluster.sandboxes().leases()]


async def left_over(stage: Host) -> list[str]:
    """Sandboxes, and processes of sandboxes, that are still there."""
    folder = sandbox_folder_of(stage.cluster)
    of_engine = [] if stage.engine is None else await stage.engine.left()
    return await held(stage) + await asyncio.to_thread(kill_processes.processes_below, folder) + of_engine
