"""Operations on a live run, group or rollout: pause, resume, cancel, retry."""

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from temporalio.client import Client, WorkflowExecutionStatus
from temporalio.exceptions import WorkflowAlreadyStartedError

from clotho.environment.kept_code import KeptCode, ask_for_new_code
from clotho.errors import InvalidInput
from clotho.identifiers.ids import campaign_id, depth_of, rollout_id, sibling_number, sibling_of, wholes_of
from clotho.identifiers.keys import delivered_key, prompt_key, scored_key, tools_key
from clotho.journal import Journal
from clotho.rollouts.group import GroupEntry, GroupRequest, ToolManifest
from clotho.rollouts.item import Delivery
from clotho.rollouts.rollout import Prompt, RolloutRequest
from clotho.rollouts.run import PAUSED_BY_HAND, AdapterRunConfig
from clotho.run_settings import RunSettings
from clotho.runs.adapter_runs import adapter_groups, read_adapter_config, start_work
from clotho.runs.budgets import budget_asked, budget_used_up, set_budget
from clotho.runs.campaigns import read_campaign_request, start_requested, tell_campaign
from clotho.runs.groups import is_large, scored_keys, target_groups
from clotho.runs.manifest import read_endpoint, read_manifest
from clotho.runs.pauses import has_ended, pause, paused_in, reason_for, resume_whole
from clotho.runs.targets import Target, running_rollouts
from clotho.temporal.search_attributes import DELEGATING, OUTCOME, PAUSED, RUN
from clotho.temporal.states import describe, ignore_unknown, is_running, workflow_ids


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
        await self._require_unfinished(target)
        await pause(self._journal, str(target), PAUSED_BY_HAND)
        if target.group is None:
            await tell_campaign(self._client, target.run)

    async def resume(self, target: Target) -> bool:
        """Resume the target and all that is part of it, and start the unfinished groups of a run that has ended.

        The work goes on with the code that its environment has now. Returns whether anything was started. Raises
        InvalidInput where the run's budget is used up, and where something that the target is part of is paused.
        """
        if target.group is not None:
            await self._resume_part(target)
            return False
        await read_manifest(self._journal, target.run)
        if (met := await budget_used_up(self._journal, target.run)) is not None:
            raise InvalidInput(
                f"{target.run}: {met}; raise it with `clotho resume {target.run} --budget JSON`"
            )
        await ask_for_new_code(self._journal, target.run)
        # after the code was asked for: a rollout goes on as soon as the pause has ended
        await resume_whole(self._journal, target.run)
        return await self._start_run(target.run)

    async def change_budget(self, target: Target, settings: RunSettings) -> None:
        """Give a run another budget or prices. Raises InvalidInput for a group or rollout, and unknown prices."""
        manifest = (await read_manifest(self._journal, target.run)).with_settings(settings)
        if target.group is not None:
            raise InvalidInput(f"{target} is part of a run: a budget is one of {target.run}")
        acts = await read_endpoint(self._journal, target.run) is not None
        await set_budget(self._journal, target.run, await budget_asked(self._journal, manifest, acts=acts))

    async def cancel(self, target: Target) -> None:
        """Request cancellation. Raises InvalidInput if it isn't running."""
        await read_manifest(self._journal, target.run)
        if target.group is None and await read_adapter_config(self._journal, target.run) is not None:
            # no campaign starts these groups, so none passes a cancel on to them
            running = await self._running_groups(target.run)
        else:
            running = [target.workflow] if await is_running(self._client, target.workflow) else []
        if not running:
            raise InvalidInput(f"{target} is not running")
        await asyncio.gather(*(self._cancel(workflow) for workflow in running))

    async def retry(self, target: Target) -> bool:
        """Start the unfinished work with its original settings; False if it is running already.

        - A run: its campaign, or those groups of the adapter that are neither scored nor dropped.
        - A group: its workflow. It takes the results of siblings that were scored, and starts the others.
        - A rollout: its workflow alone, under the same id. It asks for every turn and call again, finds those that
          are in the journal, and goes on after the last one: nothing is sampled anew. Its sandbox is attached to,
          or restored if it is lost. A group that still runs takes the result (`RolloutGroup.recheck_failed`); one
          that has failed has to be retried as well.

        It is done with the code that the environment has now. Raises InvalidInput if it is scored. Before anything
        has to be retried, a group has repaired failed siblings by itself (`RolloutGroup.repair`).
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
        work: GroupRequest | RolloutRequest = request
        if target.rollout is not None:
            tools = await self._journal.read(tools_key(request.group), ToolManifest)
            work = request.sibling(target.rollout, None if tools is None else tools.max_active_seconds)
        # a campaign's groups have it from their parent, which doesn't start this work
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

    async def boundaries(self, target: Target) -> Boundaries:
        """Counts from Temporal's visibility, which lags a moment, without rollouts that wait for a child."""
        query = running_rollouts(target)
        asked = (query, *(f"{query} AND {OUTCOME} = '{shown}'" for shown in (DELEGATING, PAUSED)))
        counts = await asyncio.gather(*(self._client.count_workflows(each) for each in asked))
        running, delegating, paused = (each.count for each in counts)
        return Boundaries(running=running - delegating, paused=paused)

    async def pause_reason(self, target: Target) -> str | None:
        """Why the target, or something that it is part of, is paused; None if it isn't."""
        return await reason_for(self._journal, str(target))

    async def _resume_part(self, target: Target) -> None:
        await self._require_unfinished(target)
        paused = await paused_in(self._journal, target.run)
        for whole in wholes_of(str(target))[1:]:
            if whole in paused:
                raise InvalidInput(f"{target} is paused with {whole} ({paused[whole]}): resume that")
        await ask_for_new_code(self._journal, target.run)
        if not await resume_whole(self._journal, str(target)) and not await is_running(
            self._client, target.workflow
        ):
            raise InvalidInput(f"{target} is not running")

    async def _require_unfinished(self, target: Target) -> None:
        """Raise InvalidInput for a target that doesn't exist, or has ended for good."""
        await read_manifest(self._journal, target.run)
        if target.group is None:
            found = await describe(self._client, target.workflow)
            ended = found is not None and found.status is WorkflowExecutionStatus.COMPLETED
        else:
            await self._request(target)
            ended = await has_ended(self._journal, str(target))
        if ended:
            raise InvalidInput(f"{target} has ended: nothing of it is left to pause or to resume")

    async def _is_scored(self, run: str) -> bool:
        """Whether all groups of a campaign are scored; False for a large run."""
        target = await target_groups(self._journal, run)
        # not counted, which takes long: a campaign that finds all groups scored ends by itself
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
                return await self._with_rollout(request.group(target.item), target)
        else:
            item = (await adapter_groups(self._journal, target.run)).get(target.group)
            if item is not None:
                manifest = await read_manifest(self._journal, target.run)
                return await self._with_rollout(config.group(manifest, target.group, item), target)
        raise InvalidInput(
            f"there is no group {target.group}: `clotho status {target.run}` shows those there are"
        )

    async def _cancel(self, workflow: str) -> None:
        with ignore_unknown():  # it has just ended
            await self._client.get_workflow_handle(workflow).cancel()

    async def _with_rollout(self, group: GroupRequest, target: Target) -> GroupRequest:
        """Return `group`; raises InvalidInput if `target` is a rollout that it doesn't have."""
        if (rollout := target.rollout) is None:
            return group
        if (number := sibling_number(rollout)) >= group.size:
            raise InvalidInput(f"there is no rollout {rollout}: groups of this run have {group.size}")
        # A replacement or a child is there once it has begun; a sibling need not have begun.
        planned = rollout == rollout_id(group.group, number)
        if not planned and await self._journal.read(prompt_key(rollout), Prompt) is None:
            raise InvalidInput(
                f"there is no rollout {rollout}: `clotho show {group.group}` shows those there are"
            )
        return group
