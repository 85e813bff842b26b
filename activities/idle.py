"""Idle sandboxes of open rollouts: checkpointed and destroyed; the next call restores them.

A rollout that is paused, or waits for its model, holds a sandbox that does nothing. After `terminal_lifetime`
without a call that is given back, where nothing is lost by it: no process runs there, and the checkpoint holds all.
"""

import asyncio
import logging
import time
from collections.abc import Sequence

from activities.sandbox import Sandboxes
from clotho.errors import ClothoError
from clotho.identifiers.ids import run_of
from clotho.identifiers.keys import final_key, lease_key, lease_of, manifest_key, reclaimed_prefix
from clotho.journal import Journal
from clotho.rollouts.lease import CheckpointEntry, LeaseEntry, ReclaimedEntry
from clotho.rollouts.run import RunManifest
from clotho.run_settings import CheckpointPolicy
from clotho.runs.rollouts import is_superseded
from clotho.runs.sandbox_calls import JournalledCall, awaited_turn, calls_in_sandbox
from clotho.sandbox.checkpoints import Checkpoint
from clotho.sandbox.reaper import Owners, OwnerState
from clotho.tools.shell import SLOT

LOOK_SECONDS = 30.0

log = logging.getLogger("clotho")


class IdleSandboxes:
    """Gives back sandboxes of this host; one in each process that serves them.

    A call that comes meanwhile loses its sandbox, as it would by a crash, and is made again in the restored one.
    """

    def __init__(self, journal: Journal, sandboxes: Sandboxes, owners: Owners) -> None:
        self._journal = journal
        self._sandboxes = sandboxes
        self._owners = owners
        self._idle_since: dict[str, float] = {}

    async def run(self) -> None:
        """Look again and again; never returns."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            try:
                await self.look()
            except ClothoError as error:
                log.warning("idle sandboxes not looked for: %s", error)

    async def look(self) -> None:
        """Reclaim the sandboxes that no call has used for as long as their runs allow."""
        held, now = [each.lease for each in await self._sandboxes.backend.leases()], time.time()
        self._idle_since = {lease: self._idle_since.get(lease, now) for lease in held}
        for lease in held:
            try:
                await self._look_at(lease, now)
            except ClothoError as error:  # the others can be looked at all the same
                log.warning("sandbox of lease %s not reclaimed: %s", lease, error)

    async def _look_at(self, lease: str, now: float) -> None:
        rollout, number = lease_of(lease)
        if lease != lease_key(rollout, number):  # made for grading, or to look at
            return
        manifest = await self._journal.read(manifest_key(run_of(rollout)), RunManifest)
        if manifest is None or manifest.checkpoints is CheckpointPolicy.OFF:
            return
        if now - self._idle_since[lease] < manifest.terminal_lifetime:
            return
        # a sandbox that has to be kept isn't looked through, or checkpointed, again at each look
        self._idle_since[lease] = now
        if not await self._is_current(rollout, number):
            return
        if (awaited := await awaited_turn(self._journal, rollout)) is None:
            return
        calls = await calls_in_sandbox(self._journal, rollout, awaited[0])
        used = max((call.entry.started + call.entry.seconds for call in calls), default=0.0)
        if now - used < manifest.terminal_lifetime:
            self._idle_since[lease] = used
            return
        taken = await self._take_checkpoint(rollout, number, calls, manifest.checkpoint_mb)
        if taken is None or not taken.exact:
            log.info("idle sandbox of %s kept: a checkpoint wouldn't hold all of it", rollout)
        elif await awaited_turn(self._journal, rollout) == awaited:  # else a later call may have a part in it
            through = calls[-1].call if calls else ""
            # before the sandbox is destroyed: without this entry, it would count as lost
            entry = ReclaimedEntry(lease=number, through=through, checkpoint=taken)
            await self._journal.append(reclaimed_prefix(rollout), entry)
            await self._sandboxes.backend.destroy(lease)
            log.info("reclaimed the idle sandbox of %s", rollout)

    async def _is_current(self, rollout: str, number: int) -> bool:
        """Whether it is the current sandbox, on this host, of an open rollout that isn't being verified."""
        entry = await self._journal.read(lease_key(rollout, number), LeaseEntry)
        return (
            entry is not None
            and entry.queue == self._sandboxes.queue
            and not await is_superseded(self._journal, rollout, number)
            and await self._journal.read(final_key(rollout), CheckpointEntry) is None
            and await self._owners.state(rollout) is OwnerState.OPEN
        )

    async def _take_checkpoint(
        self, rollout: str, number: int, calls: Sequence[JournalledCall], megabytes: int
    ) -> Checkpoint | None:
        sandbox = await self._sandboxes.attach(rollout, number)
        in_shell = next((call.call for call in reversed(calls) if SLOT in call.entry.state), None)
        shell = await self._sandboxes.job_of_shell_state(rollout, in_shell, number)
        last = next((call.call for call in reversed(calls) if call.entry.checkpoint is not None), None)
        return await self._sandboxes.checkpoint(rollout, sandbox, megabytes, shell, last)
