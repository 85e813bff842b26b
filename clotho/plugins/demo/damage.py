"""The costs of a run with crashes, each counted at its source."""

import asyncio
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from rich.table import Table
from temporalio.client import Client

from clotho.cli.terminal import amount
from clotho.config import Settings
from clotho.frozen_model import FrozenModel
from clotho.identifiers.keys import reward_key
from clotho.journal import Journal
from clotho.plugins.demo.execution_markers import marks_in
from clotho.plugins.demo.kill_processes import processes_below, processes_of_lease
from clotho.plugins.demo.provider import Bill
from clotho.rollouts.verification import RewardEntry
from clotho.runs.groups import scored_groups
from clotho.runs.rollouts import is_superseded
from clotho.sandbox.backend import SandboxBackend
from clotho.sandbox.reaper import SandboxReaper
from clotho.sandbox.registry import open_backend
from clotho.temporal.states import RolloutOwners, namespace_labels

CLEARED_SECONDS = 60.0


class RunAudit(FrozenModel):
    """Counts from a run's journal."""

    scored: int
    replaced: int
    """Siblings that were started again from scratch."""
    commands: int
    rerun: int
    """Runs of commands beyond their first, in the workspaces that were judged."""
    restored: dict[str, int]
    """Restored sandboxes, by fidelity."""


@dataclass(frozen=True)
class HostSandboxes:
    """A run's sandboxes on this host."""

    settings: Settings
    root: Path
    run: str

    @property
    def backend(self) -> SandboxBackend:
        return open_backend(self.settings, self.root)

    async def leases(self) -> list[str]:
        return [held.lease for held in await self.backend.leases() if held.lease.startswith(f"{self.run}/")]

    async def left_over(self) -> list[str]:
        """Sandboxes of the run, and processes of sandboxes that no other run holds."""
        held = [held.lease for held in await self.backend.leases()]
        others = [lease for lease in held if not lease.startswith(f"{self.run}/")]
        processes = await asyncio.to_thread(self._processes, others)
        return [lease for lease in held if lease not in others] + processes

    async def look(self, client: Client, journal: Journal) -> None:
        """The pass that the reaper of the host's worker makes every minute, made now."""
        superseded = partial(is_superseded, journal)
        labels = await namespace_labels(client, journal.store_identity)
        owners = RolloutOwners(client)
        await SandboxReaper(
            self.backend, owners, superseded, labels, self.settings.sandbox.lease_seconds
        ).look()

    async def orphans(self, client: Client, journal: Journal) -> list[str]:
        """Sandboxes left after passes of the reaper."""
        deadline = asyncio.get_running_loop().time() + CLEARED_SECONDS
        while left := await self.left_over():
            if asyncio.get_running_loop().time() > deadline:
                break
            await self.look(client, journal)
            await asyncio.sleep(0.5)
        return left

    def _processes(self, others: list[str]) -> list[str]:
        of_others = {process for lease in others for process in processes_of_lease(self.root, lease)}
        return [process for process in processes_below(self.root) if process not in of_others]


async def effects(journal: Journal, run: str) -> RunAudit:
    marks: list[Counter[str]] = []
    restored: Counter[str] = Counter()
    groups = await scored_groups(journal, run)
    siblings = [sibling for _, entry in groups for sibling in entry.siblings]
    for sibling in siblings:
        marks.append(marks_in((await journal.read_required(reward_key(sibling.rollout), RewardEntry)).log))
        restored.update(str(fidelity) for fidelity in sibling.losses)
    commands = sum(len(ran) for ran in marks)
    return RunAudit(
        scored=len(groups),
        replaced=sum(sibling.replacement_of is not None for sibling in siblings),
        commands=commands,
        rerun=sum(ran.total() for ran in marks) - commands,
        restored=restored,
    )


def damage_table(
    killed: Mapping[str, int],
    groups: int,
    effects: RunAudit,
    turns: int,
    bill: Bill,
    to_reaper: int,
    orphans: int,
) -> Table:
    """`turns` that the provider answered, each counted once; `orphans` of those left `to_reaper`."""
    table = Table(title="what was killed, and what it cost", show_header=False)
    table.add_row(
        "killed", ", ".join(amount(count, what) for what, count in sorted(killed.items())) or "nothing"
    )
    table.add_row("groups lost", f"{groups - effects.scored} of {groups}")
    table.add_row("rollouts started again from scratch", str(effects.replaced))
    table.add_row("model calls repaid", f"{bill.repaid} of {turns}")
    table.add_row("model calls answered into a killed process", str(bill.died))
    table.add_row("commands run again", f"{effects.rerun} of {effects.commands}")
    table.add_row("sandboxes orphaned", f"{orphans} ({to_reaper} left to the host's worker)")
    table.add_row("lost sandboxes made again", listed(effects.restored))
    return table


def listed(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in sorted(counts.items())) or "none"
