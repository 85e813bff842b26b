"""Sampling a turn: look its key up, render, wait for a place at the model server, ask, journal."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from temporalio import activity

from activities.budgets import BudgetWatch
from activities.claims import in_anothers_stead
from activities.ttl_cache import TTLCache
from activities.turn_claims import TurnClaims, TurnLook
from clotho import failpoints
from clotho.errors import ContextOverflow
from clotho.escaping import displayable
from clotho.identifiers.ids import depth_of, derived_seed, run_of
from clotho.identifiers.keys import turn_key
from clotho.journal import Journal
from clotho.models.backend import SampledTurn, ServerCapabilities, TurnCall
from clotho.models.endpoint import Endpoint, ModelServers
from clotho.models.gate import WORTHWHILE
from clotho.models.pacing import Pacer
from clotho.monitoring.metrics import Metrics
from clotho.rollouts.agent import planned_turn
from clotho.rollouts.group import ToolManifest, read_tools
from clotho.rollouts.outcome import Limits
from clotho.rollouts.run import RunManifest
from clotho.rollouts.transcript import Conversation, read_asked_conversation, read_conversation
from clotho.rollouts.turn import ToolCallReference, TurnEntry, TurnRequest, TurnResult
from clotho.runs.budgets import sampled_spending
from clotho.runs.manifest import note_capabilities, read_endpoint, read_manifest, required_endpoint
from clotho.runs.pauses import TurnPaused, paused_in, reason_among
from clotho.runs.trainer_steps import known_step
from clotho.tools import delegate_task
from clotho.tools.secrecy import CommandPreviews

HEARTBEATS_A_SECOND = 10
"""Of a process's turns, about: each is a write of Temporal's, and takes 5 ms of its server and database."""


@dataclass(frozen=True)
class TurnInputs:
    """The inputs of a turn, from the store."""

    manifest: RunManifest
    tools: ToolManifest
    conversation: Conversation
    endpoint: Endpoint | None
    """The model server; None where no model acts."""
    look: TurnLook


class TurnSampler:
    """Samples the turns of a process, whose queue is `queue`."""

    def __init__(
        self,
        journal: Journal,
        servers: ModelServers,
        queue: str,
        previews: CommandPreviews | None,
        metrics: Metrics,
        budgets: BudgetWatch,
        pacer: Pacer,
        claims: TurnClaims,
    ) -> None:
        """`previews` summarize calls in histories, which otherwise have the tool's name only."""
        self._budgets = budgets
        self._pacer = pacer
        self._claims = claims
        self._previews = previews
        self._journal = journal
        self._servers = servers
        self._queue = queue
        self._metrics = metrics
        self._pauses = TTLCache(partial(paused_in, journal))
        self._endpoints = TTLCache(partial(read_endpoint, journal))
        self._capabilities: dict[str, ServerCapabilities] = {}
        self._noted: dict[tuple[str, str], ServerCapabilities] = {}
        self._steps = TTLCache(partial(known_step, journal))
        self._under_way = 0
        """Turns that this process samples, or whose requests wait here."""

    async def sample(self, request: TurnRequest) -> TurnResult | None:
        """Sample a turn, or find it in the journal; None while its rollout is paused."""
        self._under_way += 1
        try:
            return await self._found_or_sampled(request)
        finally:
            self._under_way -= 1

    async def quick(self, rollout: str) -> bool:
        """Whether the rollout's model server has answered quickly of late."""
        manifest = await read_manifest(self._journal, run_of(rollout))
        if not manifest.agent.kind.has_model:
            return True
        endpoint = required_endpoint(await self._endpoints.of(run_of(rollout)), run_of(rollout))
        return self._pacer.quick_share(endpoint, rollout) >= WORTHWHILE

    async def likely_silence(self, rollout: str) -> int:
        """Whole seconds for which a turn may be silent, by the time that the server took for answers of late."""
        endpoint = await self._endpoints.of(run_of(rollout))
        # where no model acts, it takes none
        return self._silence(self._pacer.likely_seconds(endpoint, rollout) if endpoint is not None else 0.0)

    def _silence(self, seconds: float) -> int:
        """Whole seconds for which a turn that is likely to take `seconds` may be silent: a quarter of them.

        Longer where many turns are under way: their heartbeats would leave Temporal no time for anything else.
        """
        return int(max(seconds / 4, self._under_way / HEARTBEATS_A_SECOND))

    async def _found_or_sampled(self, request: TurnRequest) -> TurnResult | None:
        key = turn_key(request.rollout, request.turn)
        try:
            turn = await self._journal.once_from(
                key,
                TurnEntry,
                lambda: self._inputs(request),
                lambda inputs: self._sample(request, inputs),
            )
        except TurnPaused:
            return None
        await failpoints.reach("turn.journalled", key)
        await self._note_served(request.run)
        await self._budgets.note(request)
        tools = await read_tools(self._journal, request.rollout)
        manifest = await read_manifest(self._journal, request.run)
        # A program makes its calls itself: the workflow needs to know none of them.
        made_here = not request.asked
        commands = self._commands(turn, manifest)
        result = _result(turn, tools, manifest.limits, commands, made_here)
        cost = await self._cost(request.run, turn, manifest.limits)
        next_home = turn.next_home if turn.next_home != self._queue else ""
        if next_home and not await self._claims.served(next_home):
            next_home = ""  # what is sent there would wait in its queue before anyone looks
        silence = self._silence(result.seconds)
        return result.model_copy(update={"cost": cost, "next_home": next_home, "silence": silence})

    async def _cost(self, run: str, turn: TurnEntry, limits: Limits) -> float:
        """The cost of a turn in dollars, where rollouts have a budget of them."""
        if limits.rollout_budget is None or limits.rollout_budget.cost is None:
            return 0.0
        return sampled_spending(turn).cost(await self._budgets.price(run)) or 0.0

    def _commands(self, turn: TurnEntry, manifest: RunManifest) -> list[str]:
        if self._previews is None:
            return [""] * len(turn.tool_calls)
        hidden = manifest.tool_settings.redact
        return [self._previews.of(call.function.arguments, hidden) for call in turn.tool_calls]

    async def _inputs(self, request: TurnRequest) -> TurnInputs:
        read = read_asked_conversation if request.asked else read_conversation
        paused, manifest, tools, conversation, endpoint, look = await asyncio.gather(
            self._pauses.of(request.run),
            read_manifest(self._journal, request.run),
            read_tools(self._journal, request.rollout),
            read(self._journal, request.rollout, request.turn),
            self._endpoints.of(request.run),
            self._claims.look(request),
        )
        if reason_among(paused, request.rollout) is not None:
            raise TurnPaused
        return TurnInputs(manifest, tools, conversation, endpoint, look)

    async def _sample(self, request: TurnRequest, inputs: TurnInputs) -> TurnEntry:
        manifest, next_home = inputs.manifest, request.next_home or self._queue
        taken_over = await self._claims.begin(request, inputs.look, inputs.conversation.home)
        if (plan := inputs.conversation.prompt.plan) is not None:
            planned = planned_turn(plan, request.turn, manifest.agent.kind)
            return TurnEntry(sampled=planned, next_home=next_home)
        asking = self._ask(request, inputs, next_home)
        if not taken_over:
            return await asking
        key, counted = turn_key(request.rollout, request.turn), self._metrics.count_repaid_by_partition
        return await in_anothers_stead(self._journal, key, TurnEntry, asking, counted)

    async def _ask(self, request: TurnRequest, inputs: TurnInputs, next_home: str) -> TurnEntry:
        """Wait for a place at the model server, and ask it."""
        manifest = inputs.manifest
        endpoint = required_endpoint(inputs.endpoint, request.run)
        call = _call(request, inputs)
        try:
            info = activity.info()
            permit_wanted = self._pacer.permit(
                endpoint,
                request.rollout,
                info.attempt,
                info.priority.priority_key,
                # one that another rollout waits for is part of that one
                begun=request.turn > 0 or depth_of(request.rollout) > 0,
            )
            async with permit_wanted as permit:
                if reason_among(await self._pauses.of(request.run), request.rollout) is not None:
                    raise TurnPaused  # while it waited
                backend = self._servers.at(permit.server, manifest.model, manifest.rendering)
                if manifest.rendering is not None:
                    call = call.model_copy(update={"trainer_step": await self._steps.of(request.run)})
                await failpoints.reach("turn.asking", call.key)
                # last of all: this process may have been frozen while it waited for the permit
                await self._claims.require(request, inputs.look)
                sampled = within_limit(await backend.sample_turn(call), manifest.limits.max_calls_per_turn)
                permit.answered(sampled)
        except ContextOverflow as overflow:
            self._metrics.count_turn(manifest.environment, None)
            return TurnEntry(sampled=None, context_overflow=str(overflow), next_home=next_home)
        await failpoints.reach("turn.answered", call.key)
        self._metrics.count_turn(manifest.environment, sampled)
        if backend.capabilities is not None:
            self._capabilities[request.run] = backend.capabilities
        return TurnEntry(sampled=sampled, next_home=next_home)

    async def _note_served(self, run: str) -> None:
        """Keep the server's capabilities after a turn, since a run without a campaign checks no model before."""
        found = self._capabilities.get(run)
        if found is not None and self._noted.get((run, found.base_url)) != found:
            await note_capabilities(self._journal, run, found)
            self._noted[run, found.base_url] = found


def _call(request: TurnRequest, inputs: TurnInputs) -> TurnCall:
    conversation = inputs.conversation
    seed = derived_seed(conversation.prompt.seed, request.turn) if inputs.manifest.send_seeds else None
    offered = tuple(tool.tool_schema for tool in inputs.tools.tools)
    return TurnCall(
        key=turn_key(request.rollout, request.turn),
        model=inputs.manifest.model,
        messages=conversation.messages,
        tools=offered if conversation.tools is None else conversation.tools,
        sampling=inputs.manifest.sampling.model_copy(update={"seed": seed}),
        prior=conversation.prior,
    )


def within_limit(sampled: SampledTurn, limit: int) -> SampledTurn:
    """`sampled` with at most one call over the limit: its result tells the model of the limit."""
    calls = sampled.message.tool_calls
    if len(calls) <= limit:
        return sampled
    message = sampled.message.model_copy(update={"tool_calls": calls[: limit + 1]})
    defects = sampled.defects.model_copy(update={"beyond_limit": len(calls) - limit})
    return sampled.model_copy(update={"message": message, "defects": defects})


def _result(
    turn: TurnEntry, tools: ToolManifest, limits: Limits, commands: Sequence[str], made_here: bool
) -> TurnResult:
    calls: list[ToolCallReference] = []
    for call, command in zip(turn.tool_calls if made_here else (), commands, strict=False):
        offered = tools.offered(call.function.name)
        runs = offered is not None and len(calls) < limits.max_calls_per_turn
        reference = ToolCallReference(
            name=displayable(call.function.name),
            sandboxed=runs and offered is not None and offered.sandboxed,
            delegates=runs and call.function.name == delegate_task.NAME,
            command=command,
        )
        calls.append(reference)
    sampled = turn.sampled
    return TurnResult(
        tool_calls=tuple(calls),
        batches=tuple(map(len, tools.batches(turn.tool_calls, limits)))
        if limits.parallel_tools and made_here
        else (),
        context_overflow=sampled is None,
        truncated=sampled is not None and sampled.finish_reason == "length",
        resumed=sampled is not None and sampled.tokens is not None and bool(sampled.tokens.resumed_at),
        prompt_tokens=sampled.usage.prompt_tokens if sampled else 0,
        sampled_tokens=sampled.usage.completion_tokens if sampled else 0,
        seconds=sampled.seconds if sampled else 0.0,
        defective_calls=turn.defects.total,
    )
