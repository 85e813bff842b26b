"""The sandboxes of this host, each judged by whether a rollout still wants it."""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from temporalio.client import Client

from clotho.errors import Unavailable
from clotho.identifiers.keys import lease_of
from clotho.journal import Journal
from clotho.runs.rollouts import is_superseded
from clotho.sandbox.backend import LeaseRecord, SandboxBackend
from clotho.sandbox.reaper import ANSWER_SECONDS, OwnerState
from clotho.temporal.states import RolloutOwners, namespace_labels


class OwnerStatus(StrEnum):
    LIVE = "its rollout is open"
    SUPERSEDED = "its rollout goes on in another sandbox"
    CLOSED = "its rollout has closed"
    UNKNOWN = "Temporal doesn't know its rollout"
    ELSEWHERE = "its rollout is of another cluster or namespace"
    EXPIRED = "Temporal doesn't know its rollout, and its lease has expired"
    UNREACHABLE = "Temporal or the store can't tell of its rollout now"

    @property
    def orphan(self) -> bool:
        """Whether no rollout can need the sandbox any more."""
        return self in (OwnerStatus.SUPERSEDED, OwnerStatus.CLOSED, OwnerStatus.EXPIRED)


BY_STATE = {
    OwnerState.OPEN: OwnerStatus.LIVE,
    OwnerState.CLOSED: OwnerStatus.CLOSED,
    OwnerState.UNKNOWN: OwnerStatus.UNKNOWN,
    OwnerState.SUPERSEDED: OwnerStatus.SUPERSEDED,
}


@dataclass(frozen=True)
class AuditedSandbox:
    record: LeaseRecord
    owner: OwnerStatus

    @property
    def fact(self) -> str:
        left = self.record.expires - time.time()
        lease = f"expires in {left:.0f} s" if left > 0 else f"expired {-left:.0f} s ago"
        return f"{self.record.lease}: {lease}; {self.owner}"


class SandboxAudit:
    """The sandboxes of a host for one store's rollouts. Without a `client` their owners are unknown."""

    def __init__(self, backend: SandboxBackend, journal: Journal, client: Client | None) -> None:
        self._backend = backend
        self._journal = journal
        self._client = client

    async def held(self) -> Sequence[AuditedSandbox]:
        return [AuditedSandbox(record, await self._judge(record)) for record in await self._backend.leases()]

    async def orphans(self) -> Sequence[AuditedSandbox]:
        """The sandboxes that `clean` would destroy."""
        return [held for held in await self.held() if held.owner.orphan]

    async def clean(self) -> Sequence[AuditedSandbox]:
        """Destroy the orphans, each judged just before, as a rollout may be started again; returns them."""
        destroyed = []
        for record in await self._backend.leases():
            owner = await self._judge(record)
            if owner.orphan:
                # superseded or expired, it is of no use in any namespace; closed, only in the one that was asked
                labels = record.labels if owner is OwnerStatus.CLOSED else None
                await self._backend.destroy(record.lease, labels)
                destroyed.append(AuditedSandbox(record, owner))
        return destroyed

    async def _judge(self, record: LeaseRecord) -> OwnerStatus:
        client = self._client
        if client is None:
            return OwnerStatus.UNREACHABLE
        rollout, number = lease_of(record.lease)
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                # before the owner: an open rollout may have gone on in another sandbox, which only the store tells
                if await is_superseded(self._journal, rollout, number):
                    return OwnerStatus.SUPERSEDED
                ours = await namespace_labels(client, self._journal.store_identity)
                if not ours.same_namespace(record.labels):
                    return OwnerStatus.EXPIRED if record.expires < time.time() else OwnerStatus.ELSEWHERE
                state = await RolloutOwners(client).state(rollout)
        except (Unavailable, TimeoutError):
            return OwnerStatus.UNREACHABLE
        if state is OwnerState.UNKNOWN and record.expires < time.time():
            return OwnerStatus.EXPIRED
        return BY_STATE[state]
