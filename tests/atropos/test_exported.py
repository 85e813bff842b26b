"""The metrics that a serving adapter exports, and the dashboard's part of them."""

from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

from clotho.embedded.model import EmbeddedModelServer
from clotho.errors import InvalidInput
from clotho.runs.operations import Operations
from clotho.runs.targets import Target
from tests.atropos.adapter import GROUP_SIZE, register_trainer, serving, take_groups
from tests.atropos_api.service import running
from tests.cluster import Cluster
from tests.monitoring.exported import Sample, check_answered, exported_by, queries, total
from tests.support import eventually


@pytest.mark.slow
async def test_every_metric_of_the_adapters_dashboard_is_exported_by_one_that_delivers(
    cluster: Cluster, embedded_model: EmbeddedModelServer, folder: Path
) -> None:
    """The first adapter, which is killed, can have no port: it says so and goes on."""
    run = Target.named("exported")
    operate = Operations(cluster.open_journal(), cluster.client)
    async with (
        running(folder / "api-exported") as api,
        serving(
            cluster, run.run, embedded_model, api, ensure_scores_are_not_same=False, max_open_groups=4
        ) as adapter,
    ):
        await register_trainer(api)
        await adapter.start(CLOTHO_METRICS__HOST="192.0.2.1", CLOTHO_FAIL="delivery.sent:kill@2")
        assert await adapter.process.wait() != 0
        assert "no metrics: ports from 9464 on at 192.0.2.1" in adapter.process.output
        await adapter.start()

        async def exported_once(metric: str, least: float, **labels: str) -> list[Sample]:
            async def there() -> list[Sample] | None:
                exported = await exported_by(adapter.process)
                return exported if total(exported, metric, **labels) >= least else None

            return await eventually(there, f"{metric} {labels} to be {least} or more")

        await take_groups(api, 4)
        await operate.pause(run)
        exported = await exported_once("clotho_undelivered_groups", 4)
        assert total(exported, "clotho_oldest_undelivered_group_seconds") > 0
        assert total(exported, "clotho_groups_dropped_total") == 0

        async def cancelled() -> bool:
            """Visibility, which lags, may list none of the new groups yet, or older ones, which have ended."""
            with suppress(InvalidInput):
                await operate.cancel(run)
            return total(await exported_by(adapter.process), "clotho_groups_dropped_total") >= 1

        await eventually(cancelled, "a group that ran")

        async def settled() -> list[Sample] | None:
            """Nothing is under way to the trainer, nor left of what the first adapter had sent."""
            exported = await exported_by(adapter.process)
            sent, acknowledged, timed = (
                total(exported, f"clotho_{name}")
                for name in ("groups_sent_total", "groups_acknowledged_total", "delivery_seconds_count")
            )
            again = total(exported, "clotho_groups_acknowledged_total", duplicate="true")
            return exported if sent == acknowledged == timed and again >= 1 else None

        exported = await eventually(settled, "every group that was sent to be acknowledged")

    count = partial(total, exported)
    assert count("clotho_groups_dropped_total", reason="cancelled") >= 1
    assert len(check_answered(queries("Atropos adapter"), exported)) > 6
    assert count("clotho_groups_sent_total", again="true") >= 1
    acknowledged = count("clotho_groups_acknowledged_total")
    assert count("clotho_groups_acknowledged_total", duplicate="true") >= 1, "the API had it"
    assert count("clotho_rows_delivered_total") == acknowledged * GROUP_SIZE
    assert count("clotho_delivery_seconds_count") == acknowledged == count("clotho_groups_sent_total")
    assert count("clotho_store_request_seconds_count", request="create") > 4
    assert {(own["roles"], own["run"]) for _, own, _ in exported} == {("adapter", run.run)}
    assert any(name.startswith("temporal_") for name, _, _ in exported), "the SDK's own"
