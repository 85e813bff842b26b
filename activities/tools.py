"""Activities of tool calls: look the key up, run the tool in the rollout's sandbox, journal the result."""

import asyncio
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, replace

from pydantic import JsonValue
from temporalio import activity

from activities.claims import HeldClaim, WorkClaims
from activities.guard import activity_guard
from activities.restore import journalled_parts
from activities.sandbox import Sandboxes
from clotho import failpoints
from clotho.environment.tools import EnvironmentTools
from clotho.errors import JournalCorrupt
from clotho.identifiers.ids import call_id
from clotho.identifiers.keys import call_begun_key, call_claims_prefix, call_key, turn_key
from clotho.journal import Journal
from clotho.models.messages import ToolCall
from clotho.monitoring.metrics import Metrics
from clotho.rollouts.agent import AgentKind
from clotho.rollouts.call import CallBegun, CallEntry, CallRequest, CallResult, tool_error
from clotho.rollouts.group import OfferedTool, ToolManifest, read_tools
from clotho.rollouts.lease import Fidelity, LeaseRequest
from clotho.rollouts.run import RunManifest
from clotho.rollouts.turn import TurnEntry
from clotho.run_settings import CheckpointPolicy
from clotho.runs.children import delegated_task, delegated_work
from clotho.runs.manifest import read_manifest
from clotho.runs.sandbox_calls import JournalledCall
from clotho.sandbox.backend import SandboxInstance
from clotho.sandbox.supervised.layout import PathUnseen
from clotho.tools import delegate_task
from clotho.tools.dispatch import beyond_limit, refused
from clotho.tools.shell import SLOT, last_job
from clotho.tools.tool import CallContext, Dispatched


@dataclass
class Progress:
    """Offset in a command's output, carried by heartbeats."""

    offset: int = 0

    def seen(self, offset: int) -> None:
        self.offset = offset


@dataclass(frozen=True)
class CallInputs:
    """The inputs of a call, from the store, and its sandbox."""

    manifest: RunManifest
    tools: ToolManifest
    turn: TurnEntry
    state: Mapping[str, JsonValue]
    instance: SandboxInstance | None
    """The sandbox; None for a tool that needs none."""

    def offered(self, index: int) -> OfferedTool | None:
        """The tool that a call runs; None for one that isn't offered, and beyond the most calls of a turn."""
        if index >= self.manifest.limits.max_calls_per_turn:
            return None
        return self.tools.offered(self.turn.tool_calls[index].function.name)

    def delegates(self, index: int) -> bool:
        """Whether the workflow has run a child before the call, or learnt that it begins none."""
        tool = self.offered(index)
        return tool is not None and tool.name == delegate_task.NAME

    def is_last_in_sandbox(self, index: int) -> bool:
        """Whether no later call of the turn may change the sandbox."""
        later = [batch for batch in self.batches if batch.start > index]
        alone = [self.offered(batch.start) for batch in later if len(batch) == 1]  # others only read
        return not any(tool is not None and tool.sandboxed for tool in alone)

    @property
    def batches(self) -> list[range]:
        """The calls of the turn that run side by side."""
        return self.tools.batches(self.turn.tool_calls, self.manifest.limits)


class Tools:
    """Activities of the queues where sandboxes live."""

    def __init__(
        self,
        journal: Journal,
        sandboxes: Sandboxes,
        tools: EnvironmentTools,
        metrics: Metrics,
        claims: WorkClaims,
    ) -> None:
        self._journal = journal
        self._claims = claims
        self._metrics = metrics
        self._sandboxes = sandboxes
        self._tools = tools

    @activity.defn
    async def call_tool(self, request: CallRequest) -> CallResult:
        """Make one tool call of a turn, or find its result in the journal."""
        key = call_key(request.rollout, request.call)
        progress = Progress()
        async with activity_guard(
            request.rollout,
            lambda: progress.offset,
            lambda: self._journal.cancel_flight(key),
            queue=self._claims.queue,
        ):
            await failpoints.reach("call.asked", key)
            entry = await self._journal.once_from(
                key,
                CallEntry,
                lambda: self._inputs(request),
                lambda inputs: self._call(request, inputs, progress),
                # in the flight, since its callers may be gone by then
                lambda entry: self._delete_older_checkpoint(request, entry),
            )
            await failpoints.reach("call.journalled", key)
            replayed = await self._replay_if_late(request, entry)
            child = entry.child
            delegated = await delegated_work(self._journal, child) if child is not None else None
            limits = (await read_manifest(self._journal, request.run)).limits
        budgeted = limits.rollout_budget is not None and entry.tool in limits.rollout_budget.calls
        return CallResult(
            failed=entry.error is not None,
            seconds=entry.seconds,
            wrote_state=tuple(entry.state),
            checkpointed=entry.checkpoint is not None,
            replayed=replayed,
            budgeted=entry.tool if budgeted else None,
            delegated=delegated,
        )

    async def _inputs(self, request: CallRequest) -> CallInputs:
        manifest, tools, turn, state, instance = await asyncio.gather(
            read_manifest(self._journal, request.run),
            read_tools(self._journal, request.rollout),
            self._journal.read_required(turn_key(request.rollout, request.turn), TurnEntry),
            self._state(request),
            self._attached(request),
        )
        return CallInputs(manifest, tools, turn, state, instance)

    async def _call(self, request: CallRequest, inputs: CallInputs, progress: Progress) -> CallEntry:
        asked = inputs.turn.tool_calls[request.index]
        context = self._context(request, asked, inputs, progress)
        child = None
        if inputs.delegates(request.index):
            task, child = await delegated_task(self._journal, request.rollout, request.call)
            context = replace(context, delegated=task)
        # one for records, one for the duration: the wall clock may be set meanwhile
        started = time.time()
        clock = time.monotonic()
        dispatched = await self._dispatched(request, asked, inputs, context)
        seconds = time.monotonic() - clock
        await failpoints.reach("call.made", call_key(request.rollout, request.call))
        entry = CallEntry(
            tool=asked.function.name,
            content=dispatched.content,
            error=tool_error(request.turn, dispatched),
            state=dispatched.state,
            lease=request.lease,
            started=started,
            seconds=seconds,
            changes=dispatched.changes,
            spilled=dispatched.spilled,
            seconds_left=request.seconds_left,
            exit_code=dispatched.exit_code,
            names_error=dispatched.names_error,
            child=child,
        )
        self._metrics.count_call(entry, known=inputs.tools.offered(entry.tool) is not None)
        if context.instance is None:
            return entry
        batch = next(each for each in inputs.batches if request.index in each)
        if len(batch) > 1:  # others run, and none of them changes the sandbox
            return entry
        return await self._with_checkpoint_or_manifest(request, inputs, context, entry)

    def _context(
        self, request: CallRequest, asked: ToolCall, inputs: CallInputs, progress: Progress
    ) -> CallContext:
        held = HeldClaim(self._claims, call_claims_prefix(request.rollout, request.call))
        return CallContext(
            rollout=request.rollout,
            call=("call", request.call),
            lease=request.lease,
            tool_call_id=asked.id,
            settings=inputs.manifest.tool_settings,
            state=inputs.state,
            instance=inputs.instance,
            seconds_left=request.seconds_left,
            progress=progress.seen,
            claim=lambda: self._claim(request, held),
            require_claim=held.require,
            once=journalled_parts(self._journal, request.rollout, request.call),
        )

    async def _claim(self, request: CallRequest, held: HeldClaim) -> bool:
        """Whether this attempt is the first that begins the call; raises BegunElsewhere, as `WorkClaims.take`."""
        await held.take()
        begun = CallBegun(attempt=uuid.uuid4().hex)
        key = call_begun_key(request.rollout, request.call)
        return await self._journal.write(key, begun) == begun

    async def _dispatched(
        self, request: CallRequest, asked: ToolCall, inputs: CallInputs, context: CallContext
    ) -> Dispatched:
        limit = inputs.manifest.limits.max_calls_per_turn
        if request.index >= limit:
            return beyond_limit(asked.function.name, limit, inputs.turn.defects.beyond_limit)
        dispatcher = await self._tools.dispatcher(inputs.manifest, inputs.tools.tools)
        try:
            return await dispatcher.run(
                asked.function.name,
                asked.function.arguments,
                [tool.name for tool in inputs.tools.tools],
                context,
                turn_chars=await self._shown_before(request, inputs),
            )
        except PathUnseen as unseen:
            if (
                inputs.manifest.agent.kind is not AgentKind.MODEL
            ):  # a solution would earn nothing, and never learn why
                raise
            return refused(asked.function.name, unseen)

    async def _replay_if_late(self, request: CallRequest, entry: CallEntry) -> Fidelity | None:
        """Replay a call that an attempt in a lost sandbox journalled after this one was restored."""
        lease, made_in = request.lease, entry.lease
        if lease is None or made_in is None or made_in >= lease or not entry.changes:
            return None
        turn = await self._journal.read_required(turn_key(request.rollout, request.turn), TurnEntry)
        late = JournalledCall(request.place, turn.tool_calls[request.index], entry)
        sandbox = await self._sandboxes.attach(request.sandbox_of, lease)
        held = LeaseRequest(rollout=request.sandbox_of, number=lease)
        return await self._sandboxes.replay_late_call(held, sandbox, late, await self._state(request))

    async def _with_checkpoint_or_manifest(
        self, request: CallRequest, inputs: CallInputs, context: CallContext, entry: CallEntry
    ) -> CallEntry:
        """The entry with a checkpoint of the sandbox, or with the manifest that a replay is compared by."""
        run = inputs.manifest
        if run.checkpoints is CheckpointPolicy.OFF:
            return entry
        if run.checkpoints is CheckpointPolicy.EVERY_TURN and not inputs.is_last_in_sandbox(request.index):
            files = await context.sandbox.manifest()
            return entry.model_copy(update={"manifest": files and files.digest})
        shell = last_job({**context.state, **entry.state})
        taken = await self._sandboxes.checkpoint(
            request.sandbox_of, context.sandbox, run.checkpoint_mb, shell, request.checkpoint
        )
        return entry.model_copy(update={"checkpoint": taken})

    async def _delete_older_checkpoint(self, request: CallRequest, entry: CallEntry) -> None:
        if entry.checkpoint is None:
            return
        # Only now that the call is journalled: until then a lost sandbox is restored from the older one.
        older = await self._sandboxes.checkpoint_after(request.sandbox_of, request.checkpoint)
        if older is not None and older.digest != entry.checkpoint.digest:
            await self._journal.delete_blob(request.sandbox_of, older.digest)

    async def _attached(self, request: CallRequest) -> SandboxInstance | None:
        if request.lease is None:
            return None
        return await self._sandboxes.attach(request.sandbox_of, request.lease)

    async def _state(self, request: CallRequest) -> dict[str, JsonValue]:
        """The slots of tool state, each from the call that last wrote it."""
        calls = list(request.tool_state.items())
        entries = await self._journal.read_many(
            [call_key(request.sandbox_of, call) for _, call in calls], CallEntry
        )
        state: dict[str, JsonValue] = {}
        for (slot, call), entry in zip(calls, entries, strict=True):
            # without its state, a command would run in another directory than the model was told
            if entry is None:
                raise JournalCorrupt(f"the entry of call {call} of {request.sandbox_of} is missing")
            state[slot] = entry.state[slot]
            if slot == SLOT and request.lease is not None and entry.lease != request.lease:
                job = await self._sandboxes.job_of_shell_state(request.sandbox_of, call, request.lease)
                state[slot] = {"job": job}
        return state

    async def _shown_before(self, request: CallRequest, inputs: CallInputs) -> int:
        """Characters of this turn's earlier results, and those left to the calls that run beside this one."""
        batch = next(each for each in inputs.batches if request.index in each)
        keys = [call_key(request.rollout, call_id(request.turn, index)) for index in range(batch.start)]
        shown = sum(len(entry.content) for entry in await self._journal.read_many(keys, CallEntry) if entry)
        room = max(0, inputs.manifest.tool_settings.max_turn_chars - shown)
        return shown + room - room // len(batch)
