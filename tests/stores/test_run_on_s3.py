"""A run whose journal is in S3, while S3 goes away and comes back."""

from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pytest

from clotho.embedded.temporal_server import TemporalServer
from clotho.journal import Journal
from clotho.rollouts.outcome import Outcome
from clotho.runs.groups import scored_groups
from clotho.testing.script import Script, terminal_turns
from clotho.testing.scripted_model import ScriptedModel, serving
from tests.cluster import Cluster, cluster_in
from tests.stores.conftest import Place
from tests.stores.proxy import DisturbedConnection
from tests.support import eventually, start


@dataclass
class ClusterOnS3(Cluster):
    place: Place = field(kw_only=True)

    @property
    def store_location(self) -> str:
        return self.place.location

    @property
    def store_identity(self) -> str:
        return self.open_journal().store_identity

    def open_journal(self) -> Journal:
        return Journal(self.place.open())


@pytest.mark.slow
async def test_an_outage_costs_a_run_nothing_but_time(
    temporal: TemporalServer,
    folder: Path,
    s3_place: Place,
    disturbed_place: Place,
    connection: DisturbedConnection,
) -> None:
    model = ScriptedModel(Script(conversations=(terminal_turns(4),), latency=0.3))
    on_s3 = partial(ClusterOnS3, place=s3_place)
    async with cluster_in(temporal, folder / "on-s3", "on-s3", on_s3) as cluster, serving(model) as url:
        assert disturbed_place.s3.endpoint is not None
        await cluster.start_worker(
            CLOTHO_PLUGINS__S3__ENDPOINT=disturbed_place.s3.endpoint, CLOTHO_PLUGINS__S3__TIMEOUT="1"
        )
        handle = await start(cluster, "outage", url, group_size=2)

        async def sampled() -> bool:
            return model.calls.requests.total() >= 3

        async def refused() -> bool:
            log = cluster.folder / "worker-0.log"
            return "StoreUnavailable" in log.read_text()

        await eventually(sampled, "turns sampled")
        await connection.stop()
        await eventually(refused, "an activity that can't reach the store")
        await connection.start()
        await handle.result()
    journal = cluster.open_journal()
    [(_, entry)] = await scored_groups(journal, "outage")
    assert [(s.ending.outcome, s.turns) for s in entry.siblings] == [(Outcome.COMPLETED, 5)] * 2
    assert model.calls.paid_twice == {}
    assert not (cluster.folder / "store").exists()
