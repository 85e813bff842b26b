"""Leases: a rollout's sandbox comes to be, is found again, and goes."""

import base64

from temporalio import activity

from activities.attempt import attempt
from clotho.entries import LeaseEntry, Prompt
from clotho.identifiers import lease_key, prompt_key
from clotho.journal import Journal
from clotho.records import Lease, LeaseRequest, ReleaseRequest
from clotho.runs import read_manifest
from clotho.sandbox.base import SandboxBackend, SandboxInstance


class Sandboxes:
    """Activities of one sandbox host, and what other activities there need of leases."""

    def __init__(self, journal: Journal, backend: SandboxBackend, queue: str) -> None:
        self._journal = journal
        self.backend = backend
        self._queue = queue

    @activity.defn
    async def acquire(self, request: LeaseRequest) -> Lease:
        """Create the sandbox of a lease on this host, or find where it was created."""
        async with attempt(request.rollout):
            return await self.lease(request)

    @activity.defn
    async def release(self, request: ReleaseRequest) -> None:
        """Destroy the sandbox; idempotent, and content with nothing to destroy."""
        async with attempt(request.rollout):
            await self.backend.destroy(lease_key(request.rollout, request.lease.number))

    async def lease(self, request: LeaseRequest) -> Lease:
        key = lease_key(request.rollout, request.number)
        entry = await self._journal.once(key, LeaseEntry, lambda: self._create(request))
        return Lease(number=request.number, queue=entry.queue)

    async def attach(self, rollout: str, lease: Lease) -> SandboxInstance:
        """The agent's instance in the sandbox of a lease; raises SandboxLost if it is gone."""
        key = lease_key(rollout, lease.number)
        entry = await self._journal.require(key, LeaseEntry)
        return await self.backend.attach(key, entry.incarnation)

    async def _create(self, request: LeaseRequest) -> LeaseEntry:
        manifest = await read_manifest(self._journal, request.run)
        prompt = await self._journal.require(prompt_key(request.rollout), Prompt)
        sandbox = await self.backend.create(lease_key(request.rollout, request.number), manifest.sandbox)
        for path, content in prompt.workspace_files.items():
            await sandbox.write_file(path, base64.b64decode(content))
        return LeaseEntry(
            incarnation=sandbox.incarnation, queue=self._queue, backend=manifest.sandbox.backend
        )
