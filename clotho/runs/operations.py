"""Operations on a live run, group or rollout: pause, resume, cancel, retry."""

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from temporalio.client import Client, WorkflowUpdateFailedError
from temporalio.exceptions import WorkflowAlreadyStartedError
from temporalio.service import RPCError, RPCStatusCode

from clotho.environment.kept_code import KeptCode, ask_for_new_code
from clotho.errors import InvalidInput
from clotho.identifiers.group_keys import delivered_key, scored_key
from clotho.identifiers.ids import campaign_id, depth_of, sibling_number, sibling_of
from clotho.journal import Journal
from clotho.rollouts.group import GroupEntry, GroupRequest
from clotho.rollouts.item import Delivery
from clotho.rollouts.run import PAUSED_BY_HAND, AdapterRunConfig
from clotho.run_settings import RunSettings
from clotho.runs.adapter_runs import adapter_groups, read_adapter_config, start_work
from clotho.runs.budgets import budget_asked, budget_used_up, set_budget
from clotho.runs.campaigns import read_campaign_request, start_requested, tell_campaign
from clotho.runs.groups import is_large, scored_keys, target_groups
from clotho.runs.manifest import read_endpoint, read_manifest
from clotho.runs.pauses import pause_run, paused_because, resume_run
from clotho.runs.targets import Target, running_rollouts
from clotho.temporal.search_attributes import DELEGATING, OUTCOME, PAUSED, RUN
from clotho.temporal.states import ignore_unknown, is_running, workflow_ids


@dataclass(frozen=True)
class Boundaries:
    """Counts of running rollouts, and of those paused at a turn's boundary."""

    running: int
    paused: int


class Operations:
    """Operations on a store and a Temporal namespace; all are idempotent."""

    def __init__(self, journal: Journal, client: Client) -> None:
        self._journal = journal
        self._client = client

    async def pause(self, target: Target) -> None:
        """Pause every rollout at its next turn. Raises InvalidInput if nothing is left to pause."""
        await read_manifest(self._journal, target.run)
        if target.group is None:
            await pause_run(self._journal, target.run, PAUSED_BY_HAND)
            await tell_campaign(self._client, target.run)
        else:
            await self._update(target, "pause")

    async def resume(self, target: Target) -> bool:
        """Resume, and start the unfinished groups of a run that has ended; returns whether anything was started.

        It goes on with the code that its environment has now. Raises InvalidInput where its budget is used up.
        """
        await read_manifest(self._journal, target.run)
        if target.group is not None:
            await ask_for_new_code(self._journal, target.run)
            await self._update(target, "resume")
            return False
        if (met := await budget_used_up(self._journal, target.run)) is not None:
            raise InvalidInput(
                f"{target.run}: {met}; raise it with `clotho resume {target.run} --budget JSON`"
            )
        await ask_for_new_code(self._journal, target.run)
        await resume_run(self._journal, target.run)
        return await self._start_run(target.run)

    async def change_budget(self, target: Target, settings: RunSettings) -> None:
        """Give a run another budget or other prices. Raises InvalidInput for a part of one, and unknown prices."""
        manifest = (await read_manifest(self._journal, target.run)).with_settings(settings)
        if target.group is not None:
            raise InvalidInput(f"{target} is part of a run: a budget is one of {target.run}")
        acts = await read_endpoint(self._journal, target.run) is not None
        await set_budget(self._journal, target.run, await budget_asked(self._journal, manifest, acts=acts))

    async def cancel(self, target: Target) -> None:
        """Request cancellation. Raises InvalidInput if it isn't running."""
        await read_manifest(self._journal, target.run)
        if target.group is None and await read_adapter_config(self._journal, target.run) is not None:
            running = await self._running_groups(target.run)
        else:
            running = [target.workflow] if await is_running(self._client, target.workflow) else []
        if not running:
            raise InvalidInput(f"{target} is not running")
        await asyncio.gather(*(self._cancel(workflow) for workflow in running))

    async def retry(self, target: Target) -> bool:
        """Start the unfinished work with its original settings; False if it is running already.

        It is done with the code that the environment has now. Raises InvalidInput if it is scored.
        """
        if target.group is None:
            await read_manifest(self._journal, target.run)
            if await self._is_scored(target.run):
                raise InvalidInput(f"all groups of {target} are scored: there is nothing to retry")
            await ask_for_new_code(self._journal, target.run)
            return await self._start_run(target.run)
        if target.rollout is not None and depth_of(target.rollout):
            raise InvalidInput(f"{target} does a task of {sibling_of(target.rollout)}: retry that")
        request = await self._request(target)
        if await is_running(self._client, target.workflow):
            return False
        await ask_for_new_code(self._journal, target.run)
        work = request if target.rollout is None else request.sibling(target.rollout)
        priority = None
        if await read_adapter_config(self._journal, target.run) is None:
            priority = (await read_campaign_request(self._journal, target.run)).priority
        try:
            await start_work(self._client, work, priority)
        except WorkflowAlreadyStartedError:
            raise InvalidInput(f"{target} is scored: there is nothing to retry") from None
        return True

    async def changed_sources(self, target: Target) -> list[Path]:
        """The files of the run's environment that are here, and differ from the code that the run uses."""
        manifest = await read_manifest(self._journal, target.run)
        return await KeptCode(self._journal).changed(manifest)

    async def settled(self, target: Target) -> Delivery | None:
        """The delivery of an adapter's group; None before it, and for other targets."""
        if target.group is None:
            return None
        return await self._journal.read(delivered_key(target.group), Delivery)

    async def paused(self, target: Target) -> str | None:
        """Why the target's run is paused; None if it isn't."""
        return await paused_because(self._journal, target.run)

    async def boundaries(self, target: Target) -> Boundaries:
        """Counts from Temporal's visibility, which lags a moment. Those that wait for a child don't count."""
        query = running_rollouts(target)
        asked = (query, *(f"{query} AND {OUTCOME} = '{shown}'" for shown in (DELEGATING, PAUSED)))
        counts = await asyncio.gather(*(self._client.count_workflows(each) for each in asked))
        running, delegating, paused = (each.count for each in counts)
        return Boundaries(running=running - delegating, paused=paused)

    async def _update(self, target: Target, update: str) -> None:
        """Update the group, which then starts no further sibling, then its running rollouts."""
        await self._send(target.workflow, update)
        if target.rollout is None:
            siblings = await workflow_ids(self._client, running_rollouts(target))
            await asyncio.gather(*(self._send(sibling, update, required=False) for sibling in siblings))

    async def _send(self, workflow: str, update: str, *, required: bool = True) -> None:
        """Send an update; unless `required`, a workflow that has ended is no error."""
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

    async def _is_scored(self, run: str) -> bool:
        """Whether no group of a campaign is left to do; of a large run that isn't counted."""
        target = await target_groups(self._journal, run)
        if not target or await is_large(self._journal, run):
            return False
        return len(await scored_keys(self._journal, run)) >= target

    async def _start_run(self, run: str) -> bool:
        """Start what neither runs nor is scored; returns whether there was anything to start."""
        if (config := await read_adapter_config(self._journal, run)) is not None:
            return await self._start_adapter_groups(run, config)
        request = await read_campaign_request(self._journal, run)
        if await is_running(self._client, campaign_id(run)):
            return False
        await start_requested(self._client, request)
        return True

    async def _start_adapter_groups(self, run: str, config: AdapterRunConfig) -> bool:
        manifest, groups = await read_manifest(self._journal, run), await adapter_groups(self._journal, run)
        scored = await self._journal.read_many([scored_key(group) for group in groups], GroupEntry)
        settled = await self._journal.read_many([delivered_key(group) for group in groups], Delivery)
        running = frozenset(await self._running_groups(run))
        left = [
            config.group(manifest, group, item)
            for (group, item), *ends in zip(groups.items(), scored, settled, strict=True)
            if ends == [None, None] and group not in running
        ]
        await asyncio.gather(*(self._start_again(request) for request in left))
        return bool(left)

    async def _start_again(self, request: GroupRequest) -> None:
        with suppress(WorkflowAlreadyStartedError):  # it has just been scored
            await start_work(self._client, request)

    async def _running_groups(self, run: str) -> list[str]:
        running = f"{RUN} = '{run}' AND WorkflowType = 'RolloutGroup' AND ExecutionStatus = 'Running'"
        return await workflow_ids(self._client, running)

    async def _request(self, target: Target) -> GroupRequest:
        """The request for the target's group. Raises InvalidInput where the run has no such group."""
        assert target.group is not None
        config = await read_adapter_config(self._journal, target.run)
        if config is None:
            request = await read_campaign_request(self._journal, target.run)
            if target.item is not None and target.item < request.groups:
                return _with_sibling(request.group(target.item), target)
        else:
            item = (await adapter_groups(self._journal, target.run)).get(target.group)
            if item is not None:
                manifest = await read_manifest(self._journal, target.run)
                return _with_sibling(config.group(manifest, target.group, item), target)
        raise InvalidInput(
            f"there is no group {target.group}: `clotho status {target.run}` shows those there are"
        )

    async def _cancel(self, workflow: str) -> None:
        with ignore_unknown():  # it has just ended
            await self._client.get_workflow_handle(workflow).cancel()


def _with_sibling(group: GroupRequest, target: Target) -> GroupRequest:
    """The group of `target`; raises InvalidInput if that names a rollout which the group doesn't have."""
    if target.rollout is not None and sibling_number(target.rollout) >= group.size:
        raise InvalidInput(f"there is no rollout {target.rollout}: groups of this run have {group.size}")
    return group
