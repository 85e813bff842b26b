"""Record histories of real runs for the replay test: `python -m tests.record_histories`.

To be run when workflow code changes in a way that no run in flight has to survive.
"""

import asyncio
import json
import re
import tempfile
from pathlib import Path
from typing import Any

from temporalio.client import Client

from clotho.embedded.temporal_binary import temporal_binary
from clotho.embedded.temporal_server import TemporalServer
from clotho.identifiers.ids import campaign_id
from clotho.identifiers.keys import lease_key, turn_key
from clotho.run_settings import Acquire, RunSettings
from clotho.runs.operations import Operations
from clotho.runs.targets import Target
from clotho.testing.script import Conversation, Fault, Script
from clotho.testing.scripted_model import ScriptedModel, serving
from tests.cluster import Cluster, cluster_in
from tests.environments import delegating, side_by_side
from tests.environments.side_by_side import MEETING
from tests.harness import test_harness as harness
from tests.support import eventually, start
from tests.workflows.holding import Holding, after_turns
from tests.workflows.scripts import run, say, scoring

HISTORIES = Path(__file__).parent / "histories"
WORKER_NAME = re.compile(r"\d+@\S+")
NOTICE = "~notice"
"""Stands for the first notice of a run's first campaign."""
RECORDED = {
    "plain": ("~campaign", NOTICE, "g000000", "g000000/r0"),
    "early": ("g000000/r0",),
    "parallel": ("g000000/r0",),
    "delegated": ("g000000/r0", "g000000/r0~0001-00"),
    "shared": ("g000000/r0", "g000000/r0~0001-00"),
    "slow": ("g000000/r0",),
    "apart": ("g000000", "g000000/r0"),
    "repaired": ("~campaign", "g000000", "g000000/r0"),
    "paused": ("~campaign", "g000000/r0"),
    "failed": ("~campaign", "g000000"),
    "program": ("g000000/r0",),
    "program-lost": ("g000000/r0",),
}
SLOW = Script(conversations=(Conversation(variants=((*[run("true")] * 4, say("Done.")),)),), latency=0.8)


async def main() -> None:
    with tempfile.TemporaryDirectory(prefix="clotho-histories-") as name:
        folder = Path(name)
        folder.chmod(0o711)
        binary = await temporal_binary()
        log = folder / "temporal.log"
        server = TemporalServer(binary, log, ui_port=None)
        async with server, cluster_in(server, folder / "cluster", "default") as cluster:
            worker = await cluster.start_worker()
            await live(cluster)
            await worker.stop()
            await cluster.start_worker("workflows")
            await cluster.start_worker("tools,llm")
            await apart(cluster)
            await record(cluster.client)


async def live(cluster: Cluster) -> None:
    """The runs whose histories are kept."""
    async with serving(ScriptedModel(Script(conversations=(scoring(1.0, 0.0),)))) as url:
        await (await start(cluster, "plain", url, groups=2, group_size=2)).result()
        await (await start(cluster, "early", url, settings=RunSettings(acquire=Acquire.AT_START))).result()
    beyond_the_budget = Conversation(variants=((run("sleep 3"), run("true"), say("Done.")),))
    async with serving(ScriptedModel(Script(conversations=(beyond_the_budget,)))) as url:
        await (await start(cluster, "slow", url)).result()
    async with serving(ScriptedModel(Script(conversations=(Conversation(variants=(MEETING,)),)))) as url:
        parallel = RunSettings(parallel_tools=True)
        handle = await cluster.start("parallel", url, environment=side_by_side.NAME, settings=parallel)
        await handle.result()
    await delegated(cluster)
    await programs(cluster)
    async with serving(ScriptedModel(SLOW)) as url:
        handle = await start(cluster, "repaired", url, group_size=2)
        await written(cluster, turn_key("repaired/g000000/r0", 1))
        await cluster.client.get_workflow_handle("repaired/g000000/r0").terminate("to be repaired")
        await handle.result()
        await paused(cluster, url, Target.named("paused"))
    refused = Fault(kind="status", status=403, requests=tuple(range(1, 100)))
    async with serving(ScriptedModel(SLOW.model_copy(update={"faults": (refused,)}))) as url:
        handle = await start(cluster, "failed", url, group_size=2)
        await asyncio.gather(handle.result(), return_exceptions=True)


async def paused(cluster: Cluster, url: str, target: Target) -> None:
    """A run that is paused, and goes on."""
    operate = Operations(cluster.open_journal(), cluster.client)
    handle = await start(cluster, target.run, url)
    await written(cluster, turn_key(f"{target.run}/g000000/r0", 1))
    await operate.pause(target)
    await eventually(lambda: stopped(operate, target), "the rollout to stop")
    await operate.resume(target)
    await handle.result()


async def apart(cluster: Cluster) -> None:
    """A run whose workflows are in a process that does no step itself."""
    async with serving(ScriptedModel(Script(conversations=(scoring(1.0),)))) as url:
        await (await start(cluster, "apart", url)).result()


async def delegated(cluster: Cluster) -> None:
    """Runs with tasks that are done, in a sandbox of their own and in a shared one, and one that is refused."""
    turns = (
        run("true"),
        delegating.delegates("work"),
        delegating.delegates("", context="nothing"),
        say("Done."),
    )
    model = ScriptedModel(delegating.script(*turns, work=(run("true"), say("Done."))))
    async with serving(model) as url:
        for name, sandbox in (("delegated", "own"), ("shared", "shared")):
            settings = RunSettings(delegation={"sandbox": sandbox, "turns": 4})
            handle = await cluster.start(name, url, environment=delegating.NAME, settings=settings)
            await handle.result()


async def programs(cluster: Cluster) -> None:
    """Runs of a program with a loop of its own, in one sandbox, and in a second one after a loss."""
    async with serving(ScriptedModel(harness.script())) as url:
        await (await harness.start(cluster, "program", url)).result()
    model = Holding(harness.script(), held=after_turns(1))
    async with serving(model) as url:
        handle = await harness.start(cluster, "program-lost", url)
        await model.held(1)
        await cluster.sandboxes().destroy(lease_key("program-lost/g000000/r0", 0))
        model.release.set()
        await handle.result()


async def written(cluster: Cluster, key: str) -> None:
    async def there() -> bool:
        return (cluster.store / key).exists()

    await eventually(there, f"journal entry {key}")


async def stopped(operate: Operations, target: Target) -> bool:
    reached = await operate.boundaries(target)
    return reached.running == reached.paused > 0


async def record(client: Client) -> None:
    HISTORIES.mkdir(exist_ok=True)
    for old in HISTORIES.glob("*.json"):
        old.unlink()
    for name, workflows in RECORDED.items():
        for workflow in workflows:
            history = await client.get_workflow_handle(await id_of(client, name, workflow)).fetch_history()
            path = HISTORIES / f"{name}~{workflow.replace('/', '~')}.json"
            path.write_text(json.dumps(anonymous(json.loads(history.to_json()))) + "\n")


async def id_of(client: Client, run: str, workflow: str) -> str:
    if workflow != NOTICE:
        return f"{run}/{workflow}"
    campaign = await client.get_workflow_handle(campaign_id(run)).describe()
    notice = client.get_workflow_handle(f"{run}/~notice-{campaign.run_id}-0")
    await notice.result()
    return notice.id


def anonymous(value: Any) -> Any:
    """Without what tells of the machine: the names of workers, and stack traces."""
    if isinstance(value, dict):
        return {key: anonymous(one) for key, one in value.items() if key != "stackTrace"}
    if isinstance(value, list):
        return [anonymous(one) for one in value]
    return "worker" if isinstance(value, str) and WORKER_NAME.fullmatch(value) else value


if __name__ == "__main__":
    asyncio.run(main())
