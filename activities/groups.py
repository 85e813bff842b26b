"""Activities of campaigns and groups: items, tools, prompts, repairs, scored groups."""

import asyncio
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from pydantic import ValidationError
from temporalio import activity
from temporalio.client import Client, WorkflowExecutionStatus, WorkflowFailureError

from activities.closings import Closings
from activities.guard import activity_guard
from activities.sandbox import Sandboxes
from clotho.environment.handles import Opening
from clotho.environment.instances import Environments
from clotho.environment.tools import EnvironmentTools
from clotho.errors import EnvironmentFailed, JournalCorrupt
from clotho.frozen_model import FrozenModel
from clotho.identifiers.ids import derived_seed, is_rollout, rollout_id
from clotho.identifiers.keys import attempt_prefix, prompt_key, scored_key, tools_key
from clotho.journal import Journal
from clotho.models.messages import ChatMessage
from clotho.rollouts.agent import AgentKind
from clotho.rollouts.campaign import ItemsRequest, Unfinished, UnfinishedRequest
from clotho.rollouts.group import (
    AttemptEntry,
    AwaitAnyClosed,
    ClosedGroup,
    GroupAttempt,
    GroupEntry,
    GroupRequest,
    GroupStart,
    GroupSummary,
    OfferedTool,
    PreparedGroup,
    RepairRequest,
    ToolManifest,
)
from clotho.rollouts.item import Item
from clotho.rollouts.rollout import Prompt, encoded_files
from clotho.rollouts.run import RunManifest
from clotho.runs.budgets import with_spending
from clotho.runs.groups import unfinished
from clotho.runs.items import enumerate_items, read_item
from clotho.runs.manifest import read_manifest, read_new_manifest
from clotho.runs.plans import with_plan
from clotho.runs.repairs import claim_repair, current_siblings, group_repairs
from clotho.runs.rollouts import read_end
from clotho.temporal.states import describe, ignore_unknown
from clotho.tools.resolution import resolve
from clotho.tools.source import ProbedSandbox
from clotho.tools.tool import Tool, ToolSettings

LOOKED_UP = 50
"""Closed groups that are looked up at a time."""
MOST_CLOSED = 1_000
"""Rollouts of closed groups from which an answer is full: Temporal bounds it."""

RUNNING, COMPLETED = WorkflowExecutionStatus.RUNNING, WorkflowExecutionStatus.COMPLETED


class Groups:
    """Activities of the environment's queue."""

    def __init__(
        self,
        journal: Journal,
        environments: Environments,
        tools: EnvironmentTools,
        sandboxes: Sandboxes,
        client: Client,
    ) -> None:
        self._journal = journal
        self._environments = environments
        self._tools = tools
        self._sandboxes = sandboxes
        self._client = client
        self._closings = Closings(client)

    @activity.defn
    async def enumerate_items(self, request: ItemsRequest) -> int:
        """Write the run's items into the store; returns how many there are, at most those asked for."""
        async with activity_guard(request.run):
            manifest = await read_new_manifest(self._journal, request.run)
            async with self._environments.enumeration(manifest) as environment:
                draw = environment.next_items
                return await enumerate_items(self._journal, request.run, draw, request.groups)

    @activity.defn
    async def unfinished_groups(self, request: UnfinishedRequest) -> Unfinished:
        async with activity_guard(request.run):
            return await unfinished(self._journal, request)

    @activity.defn
    async def begin_group(self, request: GroupRequest) -> GroupStart:
        """Look up the group's result; without one, resolve its tools once, and write every sibling's prompt."""
        async with activity_guard(request.group):
            if (entry := await self._journal.read(scored_key(request.group), GroupEntry)) is not None:
                return GroupStart(scored=GroupSummary(group=request.group, siblings=entry.siblings))
            return GroupStart(prepared=await self._prepared(request))

    async def _prepared(self, request: GroupRequest) -> PreparedGroup:
        manifest = await read_manifest(self._journal, request.run)
        item = await read_item(self._journal, request.run, request.item)
        environment = await self._environments.get(manifest)
        opening = await environment.opening(item)
        # Kept, since the next attempt may be on a host with other tools: all siblings are offered the same.
        tools = await self._journal.once(
            tools_key(request.group), ToolManifest, lambda: self._resolve_tools(manifest, request, opening)
        )
        acts = manifest.agent.kind
        runs_commands = acts is AgentKind.PROGRAM or any(tool.sandboxed for tool in tools.tools)
        if acts is not AgentKind.NOP and runs_commands:
            # Before the group's first turn: a model would be paid for turns whose commands can't run.
            await self._sandboxes.require_isolation(manifest.sandbox, opening.sandbox)
        prompt = _prompt(opening, manifest, item)
        for sibling in range(request.size):
            rollout = rollout_id(request.group, sibling)
            seeded = prompt.model_copy(update={"seed": derived_seed(manifest.seed, rollout)})
            planned = await with_plan(self._journal, environment, manifest, seeded, rollout)
            # every attempt makes the prompts anew, and the first that was written stays
            await self._journal.write(prompt_key(rollout), planned)
        siblings = await current_siblings(self._journal, request.group, request.size)
        attempts = await self._journal.keys(attempt_prefix(request.group))
        return PreparedGroup(
            siblings=siblings,
            attempt=len(attempts),
            toolsets=tools.toolsets,
            tools=tuple(tool.name for tool in tools.tools),
            unavailable=tuple(tools.unavailable),
            max_active_seconds=opening.seconds,
        )

    @activity.defn
    async def conclude_group(self, request: GroupSummary) -> GroupSummary:
        """Write the scored group: complete, or not at all."""
        async with activity_guard(request.group):
            first = await self._journal.read_required(prompt_key(request.siblings[0].rollout), Prompt)
            tools = await self._journal.read_required(tools_key(request.group), ToolManifest)
            entry = GroupEntry(
                item=first.item,
                toolsets=tools.toolsets,
                siblings=request.siblings,
                repairs=await group_repairs(self._journal, request.group),
                ended=time.time(),
            )
            counted = await with_spending(self._journal, request.group, entry)
            written = await self._journal.write(scored_key(request.group), counted)
        return GroupSummary(group=request.group, siblings=written.siblings)

    @activity.defn
    async def repair_sibling(self, request: RepairRequest) -> str | None:
        """The rollout that continues a failed one; None if the bounds of repair are reached."""
        async with activity_guard(request.group):
            manifest = await read_manifest(self._journal, request.run)
            return await claim_repair(self._journal, manifest, request)

    @activity.defn
    async def keep_attempt(self, request: GroupAttempt) -> None:
        async with activity_guard(request.group):
            entry = AttemptEntry(siblings=request.siblings, failures=request.failures)
            await self._journal.write(f"{attempt_prefix(request.group)}{request.number:03}", entry)

    @activity.defn
    async def await_closed(self, workflow: str) -> None:
        """Wait until a workflow has closed, however it ends.

        Raises JournalCorrupt if it has completed and the store doesn't hold its result.
        """
        async with activity_guard(workflow):
            await self._closed(workflow)

    @activity.defn
    async def await_any_closed(self, request: AwaitAnyClosed) -> list[ClosedGroup]:
        """Wait until at least one of several groups has closed; returns closed ones, as many as an answer takes."""
        closed: list[ClosedGroup] = []
        async with activity_guard(request.run):
            while not closed:
                unlisted = await self._closings.unlisted(request.run, request.groups)
                for begin in range(0, len(unlisted), LOOKED_UP):
                    closed += await self._closed_among(unlisted[begin : begin + LOOKED_UP])
                    if sum(len(each.scored.siblings) for each in closed if each.scored) >= MOST_CLOSED:
                        break
        return closed

    async def _closed_among(self, groups: Sequence[str]) -> list[ClosedGroup]:
        states = await asyncio.gather(*(describe(self._client, group) for group in groups))
        # without a state: Temporal forgets a closed workflow after its retention time
        status_of = {group: state and state.status for group, state in zip(groups, states, strict=True)}
        closed = [group for group, status in status_of.items() if status is not RUNNING]
        entries = await self._journal.read_many([scored_key(group) for group in closed], GroupEntry)
        found = list[ClosedGroup]()
        for group, entry in zip(closed, entries, strict=True):
            if entry is None and status_of[group] is COMPLETED:
                await self._require_result(group)
            scored = None if entry is None else GroupSummary(group=group, siblings=entry.siblings)
            found.append(ClosedGroup(group=group, scored=scored))
        return found

    async def _closed(self, workflow: str) -> None:
        # a workflow that fails closes, too, and Temporal forgets a closed one after its retention time
        with suppress(WorkflowFailureError), ignore_unknown():
            await self._client.get_workflow_handle(workflow).result()
            await self._require_result(workflow)

    async def _require_result(self, workflow: str) -> None:
        """Raise JournalCorrupt if the result is missing: Temporal starts no completed workflow again."""
        result: FrozenModel | None
        if is_rollout(workflow):
            result = await read_end(self._journal, workflow)
        else:
            result = await self._journal.read(scored_key(workflow), GroupEntry)
        if result is None:
            raise JournalCorrupt(
                f"{workflow} has completed in Temporal, but its result is not in {self._journal.store_identity}: "
                "give the store that the run began in, or start it under another name"
            )

    async def _resolve_tools(
        self, manifest: RunManifest, request: GroupRequest, opening: Opening
    ) -> ToolManifest:
        selection = manifest.selection
        registry, brought = await asyncio.gather(
            self._tools.registry(manifest), self._tools_of_settings(manifest, request, opening)
        )
        resolution = resolve(
            registry.with_tools(brought),
            enabled=selection.enabled,
            disabled=selection.disabled,
            distribution=selection.distribution,
            seed=derived_seed(manifest.seed, request.group, "toolsets"),
            only=selection.tools,
            settings=manifest.tool_settings,
        )
        return ToolManifest(
            toolsets=resolution.toolsets,
            tools=tuple(_offered(tool, manifest.tool_settings) for tool in resolution.tools),
            unavailable=dict(resolution.unavailable),
            max_active_seconds=opening.seconds,
        )

    async def _tools_of_settings(
        self, manifest: RunManifest, request: GroupRequest, opening: Opening
    ) -> list[Tool]:
        """The tools that the run's settings bring, found in a sandbox with the item's files if one needs it."""
        settings, wanted, sources = manifest.tool_settings, manifest.selection.enables, self._tools.sources
        if not sources.needs_sandbox(settings, wanted):
            return await sources.tools(settings, wanted, None)
        rollout = rollout_id(request.group, 0)
        async with self._sandboxes.probed(request.run, rollout, opening.sandbox, opening.files) as instance:
            probed = ProbedSandbox(instance, (rollout, "tools"), settings.terminal_cwd)
            return await sources.tools(settings, wanted, probed)


def _offered(tool: Tool, settings: ToolSettings) -> OfferedTool:
    return OfferedTool(
        name=tool.name,
        toolset=tool.toolset,
        sandboxed=tool.sandboxed,
        read_only=tool.read_only,
        tool_schema=tool.schema(settings),
        place=tool.place,
    )


def _prompt(opening: Opening, manifest: RunManifest, item: Item) -> Prompt:
    system = [] if manifest.system_prompt is None else [{"role": "system", "content": manifest.system_prompt}]
    formatted = opening.prompt
    messages = [{"role": "user", "content": formatted}] if isinstance(formatted, str) else formatted
    return Prompt(
        item=item,
        messages=tuple(_message(message) for message in [*system, *messages]),
        seed=0,
        workspace_files=encoded_files(opening.files),
        sandbox=opening.sandbox,
    )


def _message(message: Any) -> ChatMessage:
    try:
        return ChatMessage.model_validate(message)
    except ValidationError as error:
        raise EnvironmentFailed(f"format_prompt returned a message that is none: {error}") from error
