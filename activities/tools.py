"""Tool calls: look the key up, run the tool in the rollout's sandbox, journal what the model is shown."""

import time
from dataclasses import dataclass

from pydantic import JsonValue
from temporalio import activity

from activities.attempt import attempt
from activities.sandbox import Sandboxes
from clotho import failpoints
from clotho.entries import CallEntry, ToolError, ToolManifest, TurnEntry
from clotho.errors import bounded
from clotho.identifiers import call_id, call_key, group_of, tools_key, turn_key
from clotho.inference.base import ToolCall
from clotho.journal import Journal
from clotho.records import CallRequest, CallResult
from clotho.runs import read_manifest
from clotho.toolsets.base import ToolSettings
from clotho.toolsets.calls import BoundCall
from clotho.toolsets.dispatch import Dispatched, Dispatcher

RESULT_SHOWN = 300


@dataclass
class Progress:
    """How much of a command's output this attempt has seen: what its heartbeats carry."""

    offset: int = 0

    def seen(self, offset: int) -> None:
        self.offset = offset


class Tools:
    """Activities of the queues where sandboxes live."""

    def __init__(self, journal: Journal, sandboxes: Sandboxes, dispatcher: Dispatcher) -> None:
        self._journal = journal
        self._sandboxes = sandboxes
        self._dispatcher = dispatcher

    @activity.defn
    async def call_tool(self, request: CallRequest) -> CallResult:
        """Make one tool call of a turn, or find its result in the journal."""
        call = call_id(request.turn, request.index)
        key = call_key(request.rollout, call)
        progress = Progress()
        async with attempt(request.rollout, lambda: progress.offset, lambda: self._journal.abandon(key)):
            await failpoints.reach("call.asked", key)
            entry = await self._journal.once(key, CallEntry, lambda: self._call(request, progress))
            await failpoints.reach("call.journalled", key)
        return CallResult(
            call=call, failed=entry.error is not None, seconds=entry.seconds, wrote_state=tuple(entry.state)
        )

    async def _call(self, request: CallRequest, progress: Progress) -> CallEntry:
        manifest = await read_manifest(self._journal, request.run)
        tools = await self._journal.require(tools_key(group_of(request.rollout)), ToolManifest)
        turn = await self._journal.require(turn_key(request.rollout, request.turn), TurnEntry)
        asked = turn.tool_calls[request.index]
        started = time.time()
        clock = time.monotonic()
        dispatched = await self._dispatcher.run(
            asked.function.name,
            asked.function.arguments,
            [tool.name for tool in tools.tools],
            await self._context(request, asked, manifest.tool_settings, progress),
            turn_chars=await self._shown_this_turn(request),
        )
        await failpoints.reach("call.made", call_key(request.rollout, call_id(request.turn, request.index)))
        return CallEntry(
            tool=asked.function.name,
            content=dispatched.content,
            error=_error(request.turn, dispatched),
            state=dispatched.state,
            lease=request.lease.number if request.lease else None,
            started=started,
            seconds=time.monotonic() - clock,
        )

    async def _context(
        self, request: CallRequest, asked: ToolCall, settings: ToolSettings, progress: Progress
    ) -> BoundCall:
        return BoundCall(
            rollout=request.rollout,
            scope=("call", call_id(request.turn, request.index)),
            tool_call_id=asked.id,
            settings=settings,
            state=await self._state(request),
            instance=await self._sandboxes.attach(request.rollout, request.lease) if request.lease else None,
            seen=progress.seen,
        )

    async def _state(self, request: CallRequest) -> dict[str, JsonValue]:
        """The slots of tool state as the calls that last wrote them left them."""
        keys = [call_key(request.rollout, call) for call in request.tool_state.values()]
        entries = await self._journal.read_many(keys, CallEntry)
        return {
            slot: entry.state[slot] for slot, entry in zip(request.tool_state, entries, strict=True) if entry
        }

    async def _shown_this_turn(self, request: CallRequest) -> int:
        """Characters of this turn's earlier results."""
        keys = [call_key(request.rollout, call_id(request.turn, index)) for index in range(request.index)]
        return sum(len(entry.content) for entry in await self._journal.read_many(keys, CallEntry) if entry)


def _error(turn: int, dispatched: Dispatched) -> ToolError | None:
    if (failure := dispatched.failure) is None:
        return None
    return ToolError(
        turn=turn,
        tool_name=failure.tool,
        arguments=failure.arguments,
        error=failure.error,
        tool_result=bounded(dispatched.content, RESULT_SHOWN),
    )
