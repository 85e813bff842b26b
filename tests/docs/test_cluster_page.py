"""The workers that the page on clusters starts serve a run together."""

import pytest

from clotho.processes.child import ChildProcess
from clotho.runs.groups import scored_groups
from clotho.testing.script import Script
from clotho.testing.scripted_model import ScriptedModel, serving
from tests.cli.command import CLOTHO
from tests.cluster import Cluster
from tests.docs.markdown import commands
from tests.support import start
from tests.workflows.scripts import scoring

PAGE = "docs/how-to/cluster.md"


@pytest.mark.slow
async def test_one_worker_of_each_role_is_a_whole_cluster(private_cluster: Cluster) -> None:
    cluster = private_cluster
    shown = [words for words in commands(PAGE) if words[:3] == ["clotho", "worker", "--roles"]]
    assert {words[3] for words in shown} == {"llm", "tools", "workflows"}
    settings = [f"{name}={value}" for name, value in cluster.host_variables.items()]
    place = ("--store", cluster.store_location, "--temporal", cluster.address)
    for number, words in enumerate(shown):
        command = ["env", *settings, CLOTHO, *words[1:], *place]
        worker = ChildProcess(command, cluster.folder / f"worker-{number}.log")
        await worker.start()
        cluster.workers.append(worker)
    async with serving(ScriptedModel(Script(conversations=(scoring(1.0, 0.5),)))) as url:
        handle = await start(cluster, "roles", url, groups=2, group_size=2)
        await handle.result()
    groups = await scored_groups(cluster.open_journal(), "roles")
    assert [[sibling.score for sibling in entry.siblings] for _, entry in groups] == [[1.0, 0.5]] * 2
