"""Leases of sandboxes: acquired, attached to, superseded, released."""

import asyncio
import logging
import uuid
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from pydantic import JsonValue
from temporalio import activity

from activities.guard import activity_guard
from activities.restore import Restorer
from clotho import failpoints
from clotho.errors import IsolationUnavailable, LeaseElsewhere, SandboxFenced, SandboxLost, SandboxUnavailable
from clotho.identifiers.ids import call_order, caller_at, job_key
from clotho.identifiers.keys import (
    blob_key,
    call_key,
    final_key,
    lease_key,
    probe_key,
    reclaimed_prefix,
)
from clotho.journal import Journal
from clotho.monitoring.metrics import Metrics
from clotho.plugin import load, plugins
from clotho.processes.liveness import Presence
from clotho.rollouts.call import CallEntry
from clotho.rollouts.lease import (
    CheckpointEntry,
    Fidelity,
    HostCheck,
    Lease,
    LeaseEntry,
    LeaseRequest,
    ReclaimedEntry,
    ReleaseRequest,
)
from clotho.runs.rollouts import is_superseded
from clotho.runs.sandbox_calls import JournalledCall
from clotho.sandbox.backend import Labels, SandboxBackend, SandboxInstance, SandboxSpec
from clotho.sandbox.checkpoints import Checkpoint, NotTaken
from clotho.sandbox.exhaustion import Evidence
from clotho.sandbox.isolation import UNISOLATED
from clotho.sandbox.item import ItemSandbox
from clotho.sandbox.scratch import scratch
from clotho.sandbox.verification import VerifierSetup
from clotho.tools.shell import last_job

log = logging.getLogger("clotho")

RESTORES_AT_ONCE = 4
"""Concurrent restores on a host, which serves commands meanwhile."""


class Sandboxes:
    """Activities of one sandbox host, and the leases that its other activities use."""

    def __init__(
        self,
        journal: Journal,
        backend: SandboxBackend,
        restorer: Restorer,
        labels: Labels,
        queue: str,
        scope: str,
        metrics: Metrics,
        presence: Presence,
    ) -> None:
        self._journal = journal
        self._presence = presence
        self.backend = backend
        self._restorer = restorer
        self._labels = labels
        self.queue = queue
        self._scope = scope
        self._metrics = metrics
        self._process = uuid.uuid4().hex
        self._restoring = asyncio.Semaphore(RESTORES_AT_ONCE)

    @activity.defn
    async def acquire(self, request: LeaseRequest) -> Lease:
        """Create the sandbox of a lease on this host, or find where it was created."""
        # the host's queue, not this process's: of two that create the sandbox of a lease, the second finds it
        async with activity_guard(request.rollout, queue=self.queue):
            return await self.lease(request)

    @activity.defn
    async def release(self, request: ReleaseRequest) -> None:
        """Destroy the sandbox, unless the rollout continues in another namespace; idempotent."""
        async with activity_guard(request.rollout):
            lease = lease_key(request.rollout, request.number)
            if (entry := await self._journal.read(lease, LeaseEntry)) is not None:
                self._require_here(request.rollout, entry)
            await self.backend.destroy(lease, self._labels_of(request.rollout))
            for plugin in plugins().values():
                if plugin.released is not None:
                    await load(plugin.released)(self._scope, request.rollout)

    @activity.defn
    async def host_is_present(self, request: HostCheck) -> bool:
        """Whether a host that serves a queue of this namespace is alive, by its heartbeat."""
        async with activity_guard(request.rollout):
            return await self._presence.serves(request.queue)

    async def require_isolation(self, run: SandboxSpec, asked: ItemSandbox) -> None:
        """Raise IsolationUnavailable if this host would make the sandbox itself, and can't isolate it as asked."""
        config = asked.backend or run.backend
        if config.kind != "local" or config.name not in self.backend.names:
            return
        report = await self.backend.probe()
        try:
            run.require(report)
        except IsolationUnavailable as error:
            remedy = f"{UNISOLATED}, or give --unsafe-local, with which commands run without isolation"
            if report.isolated:
                remedy = "run tool workers on another machine, or give --limits best_effort"
            raise IsolationUnavailable(f"{error}: {remedy}; `clotho doctor` tells more") from error

    async def lease(self, request: LeaseRequest) -> Lease:
        key = lease_key(request.rollout, request.number)
        entry = await self._journal.once(key, LeaseEntry, lambda: self._make(request))
        return Lease(
            number=request.number,
            queue=entry.queue,
            fidelity=entry.fidelity,
            reclaimed=entry.reclaimed,
            proven=entry.evidence == frozenset(Evidence),
        )

    async def attach(self, rollout: str, number: int) -> SandboxInstance:
        """The agent's instance in the sandbox of a lease; raises SandboxLost if it is gone.

        Raises as `require_current_lease`, too.
        """
        entry = await self.require_current_lease(rollout, number)
        return await self.backend.attach(
            lease_key(rollout, number), entry.incarnation, self._labels_of(rollout)
        )

    async def open_verifier(
        self,
        rollout: str,
        number: int,
        epoch: int,
        hidden_files: Mapping[str, bytes],
        setup: VerifierSetup,
        in_place: bool,
        beside: str | None = None,
    ) -> SandboxInstance:
        """The instance of an epoch of verification; `in_place`: the agent's own, with its live processes.

        `beside` is the key of a sandbox in place of the lease's own.
        """
        key, labels = beside or lease_key(rollout, number), self._labels_of(rollout)
        if in_place:
            entry = await self.require_current_lease(rollout, number)
            return await self.backend.verify_in_place(key, entry.incarnation, labels, setup)
        if beside is None:
            agents = (await self.entry(rollout, number)).incarnation
            setup = setup.model_copy(update={"incarnation": agents})
        return await self.backend.open_verifier(key, epoch, hidden_files, labels, setup)

    async def open_as_left(self, rollout: str, number: int, key: str) -> SandboxInstance:
        """The sandbox at `key`, beside the lease's own, as the agent left that."""
        request = LeaseRequest(rollout=rollout, number=number)
        return await self._restorer.create_as_left(request, key)

    async def close_beside(self, rollout: str, key: str) -> None:
        """Destroy a sandbox beside a lease's own."""
        await self.backend.destroy(key, self._labels_of(rollout))

    async def open_empty(self, run: str, rollout: str, key: str, asked: ItemSandbox) -> SandboxInstance:
        """The sandbox at `key`, which has nothing of the agent's."""
        return await self._restorer.create_for_grading(run, key, self._labels_of(rollout), asked)

    @asynccontextmanager
    async def probed(
        self, run: str, rollout: str, asked: ItemSandbox, files: Mapping[str, bytes]
    ) -> AsyncIterator[SandboxInstance]:
        """A sandbox with an item's files, to see before a rollout what is in it.

        Raises SandboxUnavailable where it is lost, or SandboxLost if it had used up a resource, as another would.
        """
        # Each process has its own: an attempt that was given up may end after the next one began elsewhere.
        key, labels = probe_key(rollout, self._process), self._labels_of(rollout)
        try:
            sandbox = await self._restorer.create_for_grading(run, key, labels, asked)
            for file, content in files.items():
                await sandbox.write_file(file, content, key=job_key(key, "file", file))
            yield sandbox
        except SandboxLost as lost:
            if lost.exhausted is not None:
                raise
            raise SandboxUnavailable(str(lost)) from lost
        finally:
            await self.backend.destroy(key, labels)

    async def replay_late_call(
        self,
        request: LeaseRequest,
        sandbox: SandboxInstance,
        late: JournalledCall,
        state: dict[str, JsonValue],
    ) -> Fidelity | None:
        """Replay a call in the sandbox of a later lease, unless that started with its effect."""
        started_with = (await self.entry(request.rollout, request.number)).replayed_through
        if call_order(late.call) <= call_order(started_with):
            return None
        return (await self._restorer.replay(request, sandbox, [late], state)).fidelity

    async def require_current_lease(self, rollout: str, number: int) -> LeaseEntry:
        """The entry of a lease that the rollout holds on this host.

        Raises SandboxFenced for a superseded lease, whose sandbox may be alive on a host that was cut off, or for a
        rollout whose history is lost. Raises LeaseElsewhere for a lease of another host.
        """
        await failpoints.reach("lease.sought", lease_key(rollout, number))
        if await is_superseded(self._journal, rollout, number):
            raise SandboxFenced(f"lease {lease_key(rollout, number)} was superseded")
        entry = await self.entry(rollout, number)
        self._require_here(rollout, entry)
        return entry

    async def checkpoint(
        self, rollout: str, sandbox: SandboxInstance, megabytes: int, shell: str | None, last: str | None
    ) -> Checkpoint | None:
        """Checkpoint the sandbox, and keep the blob until the rollout is sealed; None if none could be taken.

        `last` is the call after which the sandbox was last checkpointed.
        """
        previous = await self.checkpoint_after(rollout, last)
        with scratch() as blob:
            try:
                taken = await sandbox.checkpoint(
                    blob, after=shell, previous=previous, max_bytes=megabytes << 20
                )
            # no failure: what was done counts without a checkpoint, too
            except SandboxUnavailable as error:
                log.warning("no checkpoint: %s", error)
                return None
            if isinstance(taken, NotTaken):
                log.warning("no checkpoint: %s at %d bytes", taken.reason, taken.size)
                return None
            await failpoints.reach("checkpoint.taken", blob_key(rollout, taken.digest))
            # There is none where no file has changed since the last checkpoint, whose blob is kept already.
            if await asyncio.to_thread(blob.exists):
                await self._journal.write_blob(
                    rollout, taken.digest, await asyncio.to_thread(blob.read_bytes)
                )
        return taken

    async def checkpoint_as_left(
        self, rollout: str, number: int, megabytes: int, shell: str | None = None, last: str | None = None
    ) -> None:
        """Checkpoint the sandbox as the agent left it, once: verification may have to begin anew from there.

        `shell` is the call that last ran a command, `last` the one after which the sandbox was last checkpointed.
        """

        async def take() -> CheckpointEntry:
            sandbox = await self.attach(rollout, number)
            job = await self.job_of_shell_state(rollout, shell, number)
            return CheckpointEntry(checkpoint=await self.checkpoint(rollout, sandbox, megabytes, job, last))

        await self._journal.once(final_key(rollout), CheckpointEntry, take)

    async def checkpoint_after(self, rollout: str, call: str | None) -> Checkpoint | None:
        if call is None:
            return None
        return (await self._journal.read_required(call_key(rollout, call), CallEntry)).checkpoint

    async def job_of_shell_state(self, rollout: str, call: str | None, number: int) -> str | None:
        """Key of the job, in the sandbox of a lease, that left the shell as `call` left it; None without a call."""
        if call is None:
            return None
        entry = await self._journal.read_required(call_key(rollout, call), CallEntry)
        if entry.lease == number:
            return last_job(entry.state)
        lease = await self.entry(rollout, number)
        if call_order(call) <= call_order(lease.replayed_through):
            return lease.shell
        caller, own = caller_at(rollout, call)
        return job_key(caller, "call", own, number)

    async def entry(self, rollout: str, number: int) -> LeaseEntry:
        return await self._journal.read_required(lease_key(rollout, number), LeaseEntry)

    async def _make(self, request: LeaseRequest) -> LeaseEntry:
        if request.number == 0:
            entry = await self._entry_of(request, await self._restorer.create(request))
        else:
            async with self._restoring:
                entry = await self._supersede(request)
        self._metrics.count_sandbox(entry)
        return entry

    async def _supersede(self, request: LeaseRequest) -> LeaseEntry:
        """Destroy the lost sandbox, if it is on this host, and restore it. Another host finds it superseded."""
        await self.backend.destroy(lease_key(request.rollout, request.number - 1))
        restored = await self._restorer.restore(request)
        entry = await self._entry_of(request, restored.sandbox)
        before = await self.entry(request.rollout, request.number - 1)
        fidelity = restored.fidelity if entry.system == before.system else restored.elsewhere
        idle = await self._journal.latest(reclaimed_prefix(request.rollout), ReclaimedEntry)
        given_back = idle is not None and idle.lease == request.number - 1 and fidelity is Fidelity.EXACT
        return entry.model_copy(
            update={
                "fidelity": None if given_back else fidelity,
                "reclaimed": before.reclaimed + given_back,
                "replayed_through": restored.replayed_through,
                "shell": restored.shell,
            }
        )

    def _require_here(self, rollout: str, entry: LeaseEntry) -> None:
        if entry.queue != self.queue:
            raise LeaseElsewhere(
                f"the sandbox of {rollout} is at {entry.queue}, and this process serves {self.queue}: "
                "run it on the sandbox's host",
                entry.queue,
            )

    def _labels_of(self, rollout: str) -> Labels:
        return self._labels.model_copy(update={"rollout": rollout})

    async def _entry_of(self, request: LeaseRequest, sandbox: SandboxInstance) -> LeaseEntry:
        lease = lease_key(request.rollout, request.number)
        return LeaseEntry(
            incarnation=sandbox.incarnation,
            queue=self.queue,
            system=await self.backend.system(lease),
            evidence=await self.backend.evidence(lease),
        )
