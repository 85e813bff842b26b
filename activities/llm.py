"""Activities that choose a rollout's process, and sample its turns there."""

import logging
from contextlib import AbstractAsyncContextManager

from temporalio import activity

from activities.guard import activity_guard
from activities.sampling import TurnSampler
from activities.turn_claims import TurnClaims
from clotho.errors import InvalidInput, TokenizerUnavailable
from clotho.identifiers.ids import run_of
from clotho.identifiers.keys import process_key, turn_key
from clotho.journal import Journal
from clotho.models.endpoint import ModelServers
from clotho.rollouts.agent import AgentKind
from clotho.rollouts.group import read_tools
from clotho.rollouts.rollout import RolloutStart
from clotho.rollouts.turn import ChosenProcess, FirstTurnRequest, ModelProcessRequest, TurnRequest, TurnResult
from clotho.run_settings import Acquire
from clotho.runs.manifest import (
    note_capabilities,
    read_endpoint,
    read_manifest,
    read_new_manifest,
    required_endpoint,
)
from clotho.runs.rollouts import read_end

log = logging.getLogger("clotho")


class Model:
    """Activities of the processes that call models."""

    def __init__(
        self, journal: Journal, turns: TurnSampler, servers: ModelServers, queue: str, claims: TurnClaims
    ) -> None:
        self._journal = journal
        self._turns = turns
        self._servers = servers
        self._queue = queue
        self._claims = claims

    @activity.defn
    async def sample_first_turn(self, request: FirstTurnRequest) -> RolloutStart:
        """The rollout's result, if an earlier workflow was scored; else choose a process, which samples a turn.

        The process of the first attempt stays chosen: it alone finds a call that is still in flight. Within a
        workflow task, no turn is sampled unless the server has answered quickly of late.
        """
        key = process_key(request.rollout, activity.info().workflow_run_id or "")
        async with self._guard(request):
            entry = await read_end(self._journal, request.rollout)
            if entry is not None:
                return RolloutStart(scored=entry.summary)
            chosen = await self._journal.write(key, ChosenProcess(queue=self._queue))
            early = await self._acquires_at_start(request.rollout)
            program = (await read_manifest(self._journal, request.run)).agent.kind is AgentKind.PROGRAM
            # not where the workflow makes the sandbox meanwhile, or where a program has to ask for its turns
            here = request.sample and not early and not program and chosen.queue == self._queue
            if activity.info().is_local:
                here = here and await self._turns.quick(request.rollout)
            turn = await self._turns.sample(request) if here else None
            silence = await self._turns.likely_silence(request.rollout) if turn is None else 0
        return RolloutStart(
            model_queue=chosen.queue,
            acquire_at_start=early,
            turn=turn,
            silence=silence,
            program=program,
        )

    @activity.defn
    async def sample_turn(self, request: TurnRequest) -> TurnResult | None:
        """Sample a rollout's next turn, or find it in the journal; None while the rollout is paused."""
        async with self._guard(request):
            return await self._turns.sample(request)

    def _guard(self, request: TurnRequest) -> AbstractAsyncContextManager[None]:
        key = turn_key(request.rollout, request.turn)
        return activity_guard(
            request.rollout, on_cancel=lambda: self._journal.cancel_flight(key), queue=self._queue
        )

    @activity.defn
    async def choose_process(self, request: ModelProcessRequest) -> str:
        """The queue for a rollout's turns: the current one while a process serves it, else this process's."""
        async with activity_guard(request.rollout):
            if request.queue is not None and await self._claims.served(request.queue):
                return request.queue
            return self._queue

    @activity.defn
    async def check_model(self, run: str) -> None:
        """Raise what would fail every rollout: keys, permissions, the model's name; keep the capabilities."""
        async with activity_guard(run):
            manifest = await read_new_manifest(self._journal, run)
            if not manifest.agent.kind.has_model:
                return
            endpoint = required_endpoint(await read_endpoint(self._journal, run), run)
            for server in endpoint.servers:
                try:
                    backend = self._servers.at(server, manifest.model, manifest.rendering)
                    served = await backend.check(manifest.model)
                except TokenizerUnavailable as error:
                    # Where nothing has begun, its user can choose another one; later on it is an outage.
                    raise InvalidInput(str(error)) from error
                if served is not None:
                    log.info("model server: %s", served)
                    await note_capabilities(self._journal, run, served)

    async def _acquires_at_start(self, rollout: str) -> bool:
        manifest = await read_manifest(self._journal, run_of(rollout))
        if manifest.acquire is not Acquire.AT_START:
            return False
        tools = await read_tools(self._journal, rollout)
        return any(tool.sandboxed for tool in tools.tools)
