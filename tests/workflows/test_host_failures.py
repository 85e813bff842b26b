"""The host of a worker fails under a run, really: every reward is right, and no transcript tells of it."""

import asyncio
import resource

import pytest

from clotho.identifiers.ids import rollout_id
from clotho.rollouts.transcript import read_transcript
from clotho.runs.groups import scored_groups
from clotho.testing.script import Conversation, Script
from clotho.testing.scripted_model import ScriptedModel, serving
from tests.cluster import Cluster
from tests.support import eventually
from tests.workflows.scripts import run, say

ENVIRONMENT = "tests.environments.exit_codes:ExitCodes"
SIBLINGS = 4
FEWEST = 3
"""Fewest descriptors: open ones stay, and no other can be opened."""
STARVED_SECONDS, FED_SECONDS = 3.0, 2.0
SCRIPT = Script(
    conversations=(
        Conversation(
            variants=(
                (
                    run("mkdir -p sub && cd sub && echo right > ../line-1 && sleep 0.3"),
                    run("cat ../line-1; pwd; sleep 0.3"),
                    run("cp ../line-1 ../line-2; sleep 0.3"),
                    say("Done."),
                ),
            )
        ),
    )
)


async def rewards_and_results(cluster: Cluster, name: str) -> tuple[list[float], list[str]]:
    """The siblings' rewards, and every tool result that a model was shown."""
    journal = cluster.open_journal()
    [(_, entry)] = await scored_groups(journal, name)
    shown = []
    for number in range(SIBLINGS):
        transcript = await read_transcript(journal, rollout_id(f"{name}/g000000", number), 4)
        shown += [call.content for step in transcript.steps for call in step.calls]
    return [sibling.score for sibling in entry.siblings], shown


def require_undisturbed(rewards: list[float], shown: list[str]) -> None:
    assert rewards == [1.0] * SIBLINGS
    assert len(shown) == 3 * SIBLINGS
    for content in shown:
        assert '"exit_code": 0' in content, content
        assert not any(bad in content for bad in ("Error", "Errno", "/tmp/clotho")), content


@pytest.mark.slow
async def test_without_descriptors_for_seconds_no_reward_is_wrong(private_cluster: Cluster) -> None:
    """In tool calls and in verification, again and again until the run is complete."""
    cluster = private_cluster
    worker = await cluster.start_worker()
    assert worker.pid is not None
    usual = resource.prlimit(worker.pid, resource.RLIMIT_NOFILE)
    async with serving(ScriptedModel(SCRIPT)) as url:
        handle = await cluster.start("starved", url, environment=ENVIRONMENT, group_size=SIBLINGS)
        complete = asyncio.create_task(handle.result())

        async def under_way() -> bool:
            return any(cluster.folder.glob("sandboxes/*/sandboxes/*/disk/work/line-1"))

        journal, known = cluster.open_journal(), set[str]()

        async def went_on() -> bool:
            """However slow the machine is: since the last time."""
            before = set(known)
            known.clear()
            known.update(await journal.keys("starved/"))
            return complete.done() or known != before

        await eventually(under_way, "the first command")
        while not complete.done():
            resource.prlimit(worker.pid, resource.RLIMIT_NOFILE, (FEWEST, usual[1]))
            await asyncio.sleep(STARVED_SECONDS)
            resource.prlimit(worker.pid, resource.RLIMIT_NOFILE, usual)
            await asyncio.wait([complete], timeout=FED_SECONDS)
            await eventually(went_on, "the run to go on")
        await complete
    assert worker.running
    require_undisturbed(*await rewards_and_results(cluster, "starved"))
