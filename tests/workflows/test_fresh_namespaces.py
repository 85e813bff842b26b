"""A namespace whose search attributes a server has not heard of yet."""

import asyncio
from typing import Any

import pytest
from temporalio.client import Interceptor, OutboundInterceptor, StartWorkflowInput, WorkflowHandle
from temporalio.service import RPCError

from clotho.config import TemporalSettings
from clotho.embedded.temporal_binary import temporal_binary
from clotho.embedded.temporal_server import TemporalServer
from clotho.identifiers.ids import campaign_id
from clotho.rollouts.campaign import CampaignRequest
from clotho.rollouts.outcome import Limits
from clotho.runs.campaigns import start_requested
from clotho.temporal.connection import connect
from clotho.temporal.namespace import ensure_search_attributes
from clotho.temporal.states import is_running
from tests.cluster import FAST
from tests.support import ONE_FILE


class Refusals(Interceptor):
    """Notes the refusals of starts, which go on to the caller."""

    def __init__(self) -> None:
        self.first = asyncio.Event()

    def intercept_client(self, next: OutboundInterceptor) -> OutboundInterceptor:
        return Noting(next, self.first)


class Noting(OutboundInterceptor):
    def __init__(self, next: OutboundInterceptor, refused: asyncio.Event) -> None:
        super().__init__(next)
        self._refused = refused

    async def start_workflow(self, input: StartWorkflowInput) -> WorkflowHandle[Any, Any]:
        try:
            return await super().start_workflow(input)
        except RPCError:
            self._refused.set()
            raise


async def test_a_campaign_is_started_as_soon_as_the_server_knows_the_search_attributes(
    folder: Any,
) -> None:
    request = CampaignRequest(
        run="fresh", environment=ONE_FILE, groups=1, group_size=1, limits=Limits(), task_queues=FAST
    )
    log, refusals = folder / "temporal-fresh.log", Refusals()
    async with TemporalServer(await temporal_binary(), log, ui_port=None, search_attributes={}) as server:
        settings = TemporalSettings(address=server.address)
        client = await connect(settings, interceptors=[refusals])
        starting = asyncio.create_task(start_requested(client, request))
        refused = asyncio.create_task(refusals.first.wait())
        await asyncio.wait((refused, starting), return_when=asyncio.FIRST_COMPLETED)
        assert refused.done() and not starting.done(), starting
        await ensure_search_attributes(client)
        await starting
        assert await is_running(client, campaign_id("fresh"))
        with pytest.raises(RPCError):  # any other refusal is final
            await start_requested(client, request.model_copy(update={"run": "x" * 2_000}))
