"""What an operator does to a live run, a group or a rollout: pause, resume, cancel, retry."""

import asyncio
import re
from dataclasses import dataclass
from typing import Any

from temporalio.client import Client, WorkflowHandle, WorkflowUpdateFailedError
from temporalio.common import WorkflowIDConflictPolicy, WorkflowIDReusePolicy
from temporalio.exceptions import WorkflowAlreadyStartedError
from temporalio.service import RPCError, RPCStatusCode

from clotho.campaigns import identify, read_order, start_requested
from clotho.errors import InvalidInput
from clotho.identifiers import campaign_id, checked_run_name
from clotho.journal import Journal
from clotho.pauses import pause_run, resume_run
from clotho.records import CampaignRequest, GroupRequest, RolloutRequest
from clotho.runs import read_manifest
from clotho.search_attributes import OUTCOME, RUN
from clotho.temporal import is_running

TARGET = re.compile(r"(?P<run>[^/]+)(/(?P<group>g(?P<item>\d{6,}))(/(?P<rollout>r\d+(\.\d+)?))?)?", re.ASCII)
PAUSED = "paused"


@dataclass(frozen=True)
class Target:
    """A run, a group or a rollout, as its id names it."""

    run: str
    group: str | None = None
    item: int = 0
    rollout: str | None = None

    @classmethod
    def named(cls, name: str) -> "Target":
        """Raises InvalidInput for what is no id."""
        found = TARGET.fullmatch(name)
        if found is None:
            raise InvalidInput(f"{name!r} names nothing: give RUN, RUN/g000000 or RUN/g000000/r0")
        run = checked_run_name(found["run"])
        group = f"{run}/{found['group']}" if found["group"] else None
        return cls(run, group, int(found["item"] or 0), name if found["rollout"] else None)

    @property
    def workflow(self) -> str:
        return self.rollout or self.group or campaign_id(self.run)

    def __str__(self) -> str:
        return self.rollout or self.group or self.run


@dataclass(frozen=True)
class Boundaries:
    """How many of the running rollouts have stopped at a turn's boundary."""

    running: int
    paused: int


class Operations:
    """The operations on what a store and a Temporal namespace hold. All may be repeated without harm."""

    def __init__(self, journal: Journal, client: Client) -> None:
        self._journal = journal
        self._client = client

    async def pause(self, target: Target) -> None:
        """Have it stop: every rollout at its next turn. Raises InvalidInput where nothing is left to stop."""
        await read_manifest(self._journal, target.run)
        if target.group is None:
            await pause_run(self._journal, target.run, "by hand")
            await self._tell_campaign(target.run)
        else:
            await self._update(target, "pause")

    async def resume(self, target: Target) -> bool:
        """Let it go on, and start a run's campaign if that has ended; returns whether it had to be started."""
        await read_manifest(self._journal, target.run)
        if target.group is not None:
            await self._update(target, "resume")
            return False
        await resume_run(self._journal, target.run)
        running = await is_running(self._client, target.workflow)
        if not running:
            await start_requested(self._client, await read_order(self._journal, target.run))
        return not running

    async def cancel(self, target: Target) -> None:
        """Ask it to end. Raises InvalidInput if it isn't running."""
        await read_manifest(self._journal, target.run)
        if not await is_running(self._client, target.workflow):
            raise InvalidInput(f"{target} is not running")
        await self._client.get_workflow_handle(target.workflow).cancel()

    async def retry(self, target: Target) -> bool:
        """Start what is left of it as it was ordered; False where it runs already, and so stays untouched.

        Raises InvalidInput for what is scored.
        """
        order = await read_order(self._journal, target.run)
        if await is_running(self._client, target.workflow):
            return False
        if target.group is None:
            await start_requested(self._client, order)
            return True
        try:
            await self._start(target, order)
        except WorkflowAlreadyStartedError:
            raise InvalidInput(f"{target} is scored: there is nothing left to do") from None
        return True

    async def boundaries(self, target: Target) -> Boundaries:
        """As Temporal's visibility has it, which lags a moment."""
        query = running_rollouts(target)
        paused = f"{query} AND {OUTCOME} = '{PAUSED}'"
        counts = await asyncio.gather(*(self._client.count_workflows(asked) for asked in (query, paused)))
        return Boundaries(running=counts[0].count, paused=counts[1].count)

    async def _update(self, target: Target, update: str) -> None:
        """First the group, which then starts no further sibling, then those of its rollouts that run."""
        await self._send(target.workflow, update)
        if target.rollout is None:
            running = self._client.list_workflows(running_rollouts(target))
            siblings = [execution.id async for execution in running]
            await asyncio.gather(*(self._send(sibling, update, required=False) for sibling in siblings))

    async def _send(self, workflow: str, update: str, *, required: bool = True) -> None:
        """An update that wasn't `required` may find its workflow at its end."""
        try:
            await self._client.get_workflow_handle(workflow).execute_update(update)
        except WorkflowUpdateFailedError as refused:
            if required:
                raise InvalidInput(str(refused.cause)) from refused
        except RPCError as error:
            if error.status is not RPCStatusCode.NOT_FOUND:
                raise
            if required:
                raise InvalidInput(f"{workflow} is not running") from error

    async def _tell_campaign(self, run: str) -> None:
        """Only for what it shows and starts next: turns read the store."""
        try:
            await self._client.get_workflow_handle(campaign_id(run)).signal("look_at_pause")
        except RPCError as error:
            if error.status is not RPCStatusCode.NOT_FOUND:
                raise

    async def _start(self, target: Target, order: CampaignRequest) -> WorkflowHandle[Any, Any]:
        group = order.group(target.item)
        request: GroupRequest | RolloutRequest = group.sibling(target.rollout) if target.rollout else group
        return await self._client.start_workflow(
            "Rollout" if target.rollout else "RolloutGroup",
            request,
            id=target.workflow,
            task_queue=order.stations.workflows,
            id_reuse_policy=WorkflowIDReusePolicy.ALLOW_DUPLICATE_FAILED_ONLY,
            id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
            search_attributes=identify(order.run, order.environment),
        )


def running_rollouts(target: Target) -> str:
    """A query for visibility: the rollouts of `target` that run."""
    query = f"{RUN} = '{target.run}' AND WorkflowType = 'Rollout' AND ExecutionStatus = 'Running'"
    if target.rollout is not None:
        return f"{query} AND WorkflowId = '{target.rollout}'"
    return f"{query} AND WorkflowId STARTS_WITH '{target.group}/'" if target.group is not None else query
