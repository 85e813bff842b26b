"""Rollouts in containers: whole ones, and one whose container is killed in the middle of a command."""

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import pytest
from temporalio.client import WorkflowFailureError

from clotho.identifiers.ids import campaign_id
from clotho.plugins.containers.config import DockerConfig
from clotho.plugins.containers.engine import Engine
from clotho.rollouts.campaign import CampaignProgress
from clotho.rollouts.group import RepairBounds
from clotho.rollouts.lease import Fidelity
from clotho.run_settings import RunSettings
from clotho.runs.rollouts import read_end
from clotho.testing.script import Conversation, Script
from clotho.testing.scripted_model import ScriptedModel, serving
from tests.cluster import Cluster
from tests.containers import engine
from tests.machine_image import IMAGE
from tests.support import PATIENCE_SECONDS, eventually, start
from tests.workflows.losses import output
from tests.workflows.scripts import run, say

__all__ = ["engine"]

SETTINGS = RunSettings(sandbox="docker", image=IMAGE)
COMMANDS = (
    "pwd; cat from-the-image; echo 1 > /app/log; echo left > /etc/left",
    "echo 2 >> log; touch /app/waiting; while [ ! -e /app/go ]; do sleep 0.05; done; cat log",
    "echo -n 1 > /app/score",
)


@pytest.fixture
async def workers(private_cluster: Cluster, engine: str) -> AsyncIterator[Cluster]:
    await private_cluster.start_worker(CLOTHO_PLUGINS__CONTAINERS__DOCKER_HOST=engine)
    yield private_cluster


def left_behind(engine: str, rollout: str) -> list[str]:
    """The containers of a rollout."""
    label = f"clotho.rollout={rollout}"
    found = Engine(engine).client.containers.list(all=True, filters={"label": [label]})
    return [str(each.name) for each in found]


@pytest.mark.parametrize("killed", [False, pytest.param(True, marks=pytest.mark.slow)])
async def test_a_rollout_in_a_container_earns_its_reward(workers: Cluster, engine: str, killed: bool) -> None:
    """Also where its container is killed: the command runs again in the next, from the last checkpoint."""
    rollout = "contained/g000000/r0"

    async def waiting(but: Path | None = None) -> Path | None:
        files = workers.folder.glob("sandboxes/*/containers/sandboxes/*/disk/work/waiting")
        return next((file for file in files if file != but), None)

    turns = (*map(run, COMMANDS), say("Done."))
    async with serving(ScriptedModel(Script(conversations=(Conversation(variants=(turns,)),)))) as url:
        handle = await start(workers, "contained", url, settings=SETTINGS)
        file = await eventually(waiting, "the second command running")
        if killed:
            (container,) = left_behind(engine, rollout)
            await asyncio.to_thread(Engine(engine).client.containers.get(container).kill)
            file = await eventually(partial(waiting, but=file), "it running in the next container")
        file.with_name("go").touch()
        await handle.result()
    assert (await output(workers, rollout, "0000-00")).split() == ["/app", "1"]
    assert (await output(workers, rollout, "0001-00")).split() == ["1", "2"]
    end = await read_end(workers.open_journal(), rollout)
    assert end is not None and end.summary.score == 1.0
    assert end.summary.losses == ((Fidelity.RESTORED,) if killed else ())

    async def nothing_left() -> bool:
        return not left_behind(engine, rollout)

    await eventually(nothing_left, "the containers gone")


@pytest.mark.slow
async def test_a_system_that_was_changed_beyond_its_bound_scores_0(workers: Cluster) -> None:
    config = DockerConfig(image=IMAGE, system_changes_mb=1)
    turns = (run("head -c 4M /dev/zero > /usr/large; echo -n 1 > /app/score"), say("Done."))
    async with serving(ScriptedModel(Script(conversations=(Conversation(variants=(turns,)),)))) as url:
        settings = RunSettings(sandbox=config.model_dump_json())
        await (await start(workers, "changed", url, settings=settings)).result()
    end = await read_end(workers.open_journal(), "changed/g000000/r0")
    assert end is not None and (end.summary.score, end.summary.losses) == (0.0, ())


@pytest.mark.slow
async def test_containers_made_ahead_end_with_their_worker(private_cluster: Cluster, engine: str) -> None:
    """The second rollout takes one of them."""
    cluster = private_cluster
    worker = await cluster.start_worker(
        CLOTHO_PLUGINS__CONTAINERS__DOCKER_HOST=engine, CLOTHO_PLUGINS__CONTAINERS__WARM="1"
    )
    ahead = "sandboxes/*/containers/pool/*/*/sandbox.json"

    async def made_ahead() -> bool:
        return any(cluster.folder.glob(ahead))

    turns = (run("echo -n 1 > /app/score"), say("Done."))
    async with serving(ScriptedModel(Script(conversations=(Conversation(variants=(turns,)),)))) as url:
        await (await start(cluster, "cold", url, settings=SETTINGS)).result()
        await eventually(made_ahead, "a container made ahead")
        await (await start(cluster, "warm", url, settings=SETTINGS)).result()
    end = await read_end(cluster.open_journal(), "warm/g000000/r0")
    assert end is not None and end.summary.score == 1.0
    await eventually(made_ahead, "another one made ahead")
    await worker.stop(PATIENCE_SECONDS)
    assert not await made_ahead()
    found = Engine(engine).client.containers.list(all=True)
    assert not [each for each in found if str(cluster.folder) in each.labels.get("clotho.root", "")]


@pytest.mark.slow
async def test_an_image_that_does_not_exist_fails_its_group_without_a_reward(workers: Cluster) -> None:
    async with serving(
        ScriptedModel(Script(conversations=(Conversation(variants=((run("true"),),)),)))
    ) as url:
        missing = RunSettings(sandbox="docker", image="localhost/no-such-image")
        handle = await start(workers, "imageless", url, settings=missing, repairs=RepairBounds(per_group=0))
        with pytest.raises(WorkflowFailureError):
            await handle.result()
    asked = workers.client.get_workflow_handle(campaign_id("imageless"))
    progress = await asked.query("progress", result_type=CampaignProgress)
    assert (progress.scored, progress.failed) == (0, 1)
    assert "localhost/no-such-image" in str(progress.failures[0].reason)
    assert await read_end(workers.open_journal(), "imageless/g000000/r0") is None
