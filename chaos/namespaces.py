"""One store and host, two namespaces of Temporal: a run is closed in one and goes on in the other."""

from contextlib import suppress

from temporalio.service import RPCError

from chaos.phases import Hit
from chaos.stage import RUN, Stage
from chaos.waiting import until
from clotho.config import TemporalSettings
from clotho.identifiers.ids import campaign_id
from clotho.temporal.connection import connect
from tests.cluster import register

LOOK_SECONDS = 0.1
"""Between two looks of the old namespace's worker at the host's sandboxes, of which it makes one a minute."""
MOST_LOSSES = 2
"""Of a rollout's sandboxes: the one of its closed workflow, and one more where the phase destroys one itself."""


async def move_to_another_namespace(stage: Stage, hit: Hit, rollout: str) -> None:
    """The old namespace's workers stay, and look after the host's sandboxes all the time."""
    old = stage.cluster
    client = await connect(
        TemporalSettings(address=stage.servers.temporal.address, namespace=f"{old.client.namespace}-b")
    )
    await register(client)
    for workflow in (campaign_id(RUN), *stage.groups(), *stage.rollouts()):
        with suppress(RPCError):  # it has ended, or never began
            await old.client.get_workflow_handle(workflow).terminate("a fault on purpose")
    hit.release()
    stage.cluster = old.in_namespace(client)
    await until(stage.is_usable, "a new namespace")
    await stage.start_more_workers()
    stage.keep_doing("the old namespace's reaper", old.reaper().look, LOOK_SECONDS)
    await stage.start_campaign()
