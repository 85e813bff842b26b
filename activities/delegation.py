"""Activities of calls that delegate a task: whether a call begins a child, and with what prompt and tools."""

import asyncio
from collections.abc import Sequence

from temporalio import activity

from activities.guard import activity_guard
from clotho.errors import InvalidInput
from clotho.identifiers.ids import child_id, depth_of, derived_seed
from clotho.identifiers.keys import (
    call_key,
    delegation_key,
    delegations_prefix,
    prompt_key,
    turn_key,
)
from clotho.journal import Journal
from clotho.models.messages import ChatMessage
from clotho.rollouts.call import CallEntry, CallRequest
from clotho.rollouts.delegation import DelegatedPrompt, DelegationEntry
from clotho.rollouts.group import OfferedTool, in_toolsets, read_tools
from clotho.rollouts.rollout import Prompt
from clotho.rollouts.turn import TurnEntry
from clotho.runs.children import read_child_end
from clotho.runs.manifest import read_manifest
from clotho.runs.plans import with_recorded_plan
from clotho.tools import delegate_task
from clotho.tools.delegate_task import DelegateTask
from clotho.tools.delegation import DelegationSettings
from clotho.tools.dispatch import accepted_arguments
from clotho.tools.tool import Arguments, ToolOutcome

INSTRUCTIONS = (
    "You do one task for another agent, which has no part in your work and sees nothing of it but your last "
    "message: say there what it asked for, what you did, and what is left. Nobody answers questions."
)
IN_SHARED = "You work in that agent's own sandbox: leave there what the task asks for."


class Delegations:
    """Activities of the environment's queue."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    @activity.defn
    async def begin_delegation(self, request: CallRequest) -> DelegationEntry | None:
        """Decide whether a call begins a child, and write the child's prompt; None where the call was made."""
        async with activity_guard(request.rollout):
            if await self._journal.read(call_key(request.rollout, request.call), CallEntry) is not None:
                return None
            key = delegation_key(request.rollout, request.call)
            return await self._journal.once(key, DelegationEntry, lambda: self._decide(request))

    async def _decide(self, request: CallRequest) -> DelegationEntry:
        manifest, tools, turn, prompt = await asyncio.gather(
            read_manifest(self._journal, request.run),
            read_tools(self._journal, request.rollout),
            self._journal.read_required(turn_key(request.rollout, request.turn), TurnEntry),
            self._journal.read_required(prompt_key(request.rollout), Prompt),
        )
        if (settings := manifest.tool_settings.delegation) is None:
            raise InvalidInput(f"run {request.run} has no settings for delegation, and offers it")
        asked = accepted_arguments(DelegateTask(), turn.tool_calls[request.index].function.arguments)
        if isinstance(asked, ToolOutcome):
            return DelegationEntry(child=None, refused=asked.content)
        earlier = await self._journal.keys(delegations_prefix(request.rollout))
        begun = await self._journal.read_many(earlier, DelegationEntry)
        if sum(entry is not None and entry.child is not None for entry in begun) >= settings.children:
            return _refused(f"A rollout may delegate {settings.children} tasks, and this one has")
        child = child_id(request.rollout, request.call)
        given = _given(settings, tools.tools, asked, depth_of(child))
        if isinstance(given, str):
            return _refused(given)
        shared = settings.sandbox == "shared"
        delegated = DelegatedPrompt(parent=request.rollout, call=request.call, tools=given)
        update = {
            "messages": _messages(manifest.system_prompt, asked, shared),
            "seed": derived_seed(manifest.seed, child),
            "delegated": delegated,
            "workspace_files": {} if shared else prompt.workspace_files,
        }
        asks = prompt.model_copy(update=update)
        if prompt.recorded is not None:
            recorded = await read_child_end(self._journal, child_id(prompt.recorded, request.call))
            asks = await with_recorded_plan(self._journal, asks, recorded)
        # before the entry that names the child: whoever reads that starts the child, which needs its prompt
        await self._journal.write(prompt_key(child), asks)
        return DelegationEntry(child=child, turns=settings.turns, shared=shared)


def _refused(why: str) -> DelegationEntry:
    return DelegationEntry(child=None, refused=why)


def _given(
    settings: DelegationSettings, offered: Sequence[OfferedTool], asked: Arguments, depth: int
) -> tuple[str, ...] | str:
    """The names of the tools that a child is offered; a refusal for toolsets that the child can't have."""
    may = offered if settings.tools is None else in_toolsets(offered, settings.tools)
    may = [tool for tool in may if tool.name != delegate_task.NAME or depth < settings.depth]
    wanted = asked.get("toolsets") or None
    if wanted is None:
        return tuple(tool.name for tool in may)
    if lacking := [name for name in wanted if not in_toolsets(may, [name])]:
        there = ", ".join(sorted({tool.toolset for tool in may})) or "none"
        return (
            f"No toolset {', '.join(map(ascii, lacking))} can be given to another agent. There are: {there}"
        )
    return tuple(tool.name for tool in in_toolsets(may, wanted))


def _messages(system: str | None, asked: Arguments, shared: bool) -> tuple[ChatMessage, ...]:
    instructions = [*([] if system is None else [system]), INSTRUCTIONS, *([IN_SHARED] if shared else [])]
    context = asked.get("context")
    task = asked["goal"] if not context else f"{asked['goal']}\n\nContext:\n{context}"
    return (
        ChatMessage(role="system", content="\n\n".join(instructions)),
        ChatMessage(role="user", content=task),
    )
