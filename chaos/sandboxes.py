"""A cell's sandboxes as the host sees them: what ran in them, how they die, and what is left at the end."""

import asyncio
import os
import signal
from collections import Counter
from contextlib import suppress
from functools import partial
from pathlib import Path

from chaos.stage import Stage
from chaos.tasks import MARKS
from clotho.runs import is_followed
from clotho.sandbox.control import ControlDirectory
from clotho.sandbox.folders import SandboxFolder
from clotho.sandbox.keeper import LeaseKeeper
from clotho.sandbox.launch import lock_holder
from clotho.sandbox.local import REGISTRY
from clotho.sandbox.processes import users_of_processes
from clotho.temporal import RolloutOwners

LEASE_SECONDS = 600.0


async def leases_of(stage: Stage, rollout: str) -> list[str]:
    return [lease for lease in await held(stage) if lease.startswith(f"{rollout}/lease/")]


async def marks(stage: Stage, rollout: str) -> Counter[str]:
    """Call -> how often it has run so far, in the sandboxes that the rollout has now."""
    return await asyncio.to_thread(_marks, stage.sandbox_folder, await leases_of(stage, rollout))


def _marks(root: Path, leases: list[str]) -> Counter[str]:
    found: Counter[str] = Counter()
    for lease in leases:
        with suppress(FileNotFoundError):
            file = SandboxFolder.of_lease(root, lease).workspace / Path(MARKS).name
            found.update(file.read_text().split())
    return found


async def kill_supervisors(stage: Stage, rollout: str) -> None:
    """SIGKILL to the PID 1 of every instance, with which the kernel ends the rest; files stay."""
    for lease in await leases_of(stage, rollout):
        await asyncio.to_thread(_kill_supervisors, SandboxFolder.of_lease(stage.sandbox_folder, lease))


def _kill_supervisors(folder: SandboxFolder) -> None:
    for path in folder.instances():
        alive = ControlDirectory(path, None).alive_file
        if alive.exists() and (pid := lock_holder(alive)) is not None:
            os.kill(pid, signal.SIGKILL)
            while lock_holder(alive) is not None:
                pass


async def destroy(stage: Stage, rollout: str) -> None:
    """Processes and files go, as with a machine that is lost."""
    await kill_supervisors(stage, rollout)
    backend = stage.cluster.sandboxes()
    for lease in await leases_of(stage, rollout):
        await backend.destroy(lease)


async def janitor_pass(stage: Stage) -> None:
    """The pass that a host's worker makes every minute, made now."""
    owners = RolloutOwners(stage.cluster.client)
    followed = partial(is_followed, stage.cluster.open_journal())
    await LeaseKeeper(stage.cluster.sandboxes(), owners, followed, LEASE_SECONDS).look()


async def held(stage: Stage) -> list[str]:
    """The leases of the sandboxes that are there."""
    return [held.lease for held in await stage.cluster.sandboxes().leases()]


async def left_over(stage: Stage) -> list[str]:
    """Sandboxes, and processes of sandboxes, that are still there."""
    return await held(stage) + await asyncio.to_thread(_processes, stage.sandbox_folder)


def _processes(root: Path) -> list[str]:
    """Those that run as a user claimed for one of this cell's sandboxes, or see one of its folders."""
    users = {int(path.name) for path in REGISTRY.glob("[0-9]*") if _claimed_below(path, root)}
    return [
        f"process {process.name} of user {user}"
        for process, user in users_of_processes().items()
        if user in users or _sees(process, root)
    ]


def _claimed_below(claim: Path, root: Path) -> bool:
    try:
        return Path(claim.read_text()).is_relative_to(root)
    except FileNotFoundError:
        return False


def _sees(process: Path, root: Path) -> bool:
    try:
        return f"--bind\0{root}".encode() in (process / "cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return False
