"""The journal outlives Temporal."""

from pathlib import Path

from clotho.embedded.temporal_server import TemporalServer
from clotho.identifiers import turn_key
from clotho.runs import read_end
from clotho.search_attributes import SEARCH_ATTRIBUTES
from clotho.testing.cluster import cluster_in
from clotho.testing.script import Conversation, Script
from clotho.testing.scripted_model import ScriptedModel, serving
from tests.conftest import server_binary
from tests.support import eventually, start
from tests.workflows.scripts import run, say


async def test_a_run_goes_on_without_its_database(folder: Path) -> None:
    """Server and workers die with the database. The same run, started again, pays for no completed turn again,
    re-runs no finished command, and goes on in the sandboxes that it had."""
    home = folder / "database-lost"
    home.mkdir(mode=0o711)
    server = TemporalServer(
        await server_binary(),
        home / "temporal.log",
        ui_port=None,
        db=home / "temporal.db",
        search_attributes=SEARCH_ATTRIBUTES,
    )
    turns = [run(f"echo {number} >> /work/ran") for number in range(4)]
    last = (run("test $(tr -d '\\n' < /work/ran) = 0123 && echo -n 1 > /work/score"), say("Done."))
    model = ScriptedModel(Script(conversations=(Conversation(variants=((*turns, *last),)),), latency=0.5))
    async with serving(model) as url, server, cluster_in(server, home / "cluster", "default") as cluster:
        worker = await cluster.start_worker()
        await start(cluster, "outlived", url, groups=2, group_size=2)

        async def under_way() -> bool:
            return all((cluster.store / turn_key(f"outlived/g00000{g}/r1", 2)).exists() for g in range(2))

        await eventually(under_way, "third turns")
        await worker.kill()
        await server.kill()
        for file in home.glob("temporal.db*"):
            file.unlink()
        journalled = {key for key in await cluster.open_journal().keys("outlived/") if "/turn/" in key}
        await server.restart()
        await cluster.start_worker()
        progress = await (await start(cluster, "outlived", url, groups=2, group_size=2)).result()
        assert (progress.rollouts, progress.reward_sum) == (4, 4.0)
        assert len(journalled) >= 8
        assert {model.calls.requests[key] for key in journalled} == {1}
        assert await read_end(cluster.open_journal(), "outlived/g000001/r1") is not None
