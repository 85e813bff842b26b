"""A program that makes its tests fail earns 0, in place of leaving its whole group without rewards."""

from pathlib import Path

import pytest

from clotho.config import variable
from clotho.identifiers.keys import reward_key
from clotho.rollouts.verification import RewardEntry
from clotho.runs.disturbances import Disturbance, disturbances_of
from clotho.runs.groups import scored_groups
from clotho.runs.rollouts import read_end
from clotho.testing.script import Conversation, Script
from clotho.testing.scripted_model import ScriptedModel, serving
from tests.cluster import Cluster
from tests.containers import engine
from tests.machine_image import IMAGE
from tests.tasks.making import make_task
from tests.workflows.scripts import run, say

__all__ = ["engine"]

TEST = "#!/bin/sh\nsh ./program\ngrep -q right answer && echo 1 > /logs/verifier/reward.txt\n"
TEST += "[ -s /logs/verifier/reward.txt ] || echo 0 > /logs/verifier/reward.txt\n"
PROGRAMS = {
    "rm -r /logs/verifier": "neither reward.json nor reward.txt",
    "kill -9 $PPID": "neither reward.json nor reward.txt",
    "echo [ > /logs/verifier/reward.json": "isn't JSON",
    "echo right > answer": None,
}


@pytest.fixture(params=[True, False], ids=["bubblewrap", "container"])
def host_programs(request: pytest.FixtureRequest) -> bool:
    if not request.param:
        request.getfixturevalue("engine")
    return bool(request.param)


@pytest.mark.slow
async def test_a_program_that_voids_its_verification_scores_0(
    private_cluster: Cluster, tmp_path: Path, host_programs: bool
) -> None:
    cluster, docker_host = private_cluster, variable("DOCKER_HOST") or ""
    await cluster.start_worker(
        **({} if host_programs else {"CLOTHO_PLUGINS__CONTAINERS__DOCKER_HOST": docker_host})
    )
    folder = make_task(tmp_path / "task", f'[environment]\ndocker_image = "{IMAGE}"\n')
    (folder / "tests" / "test.sh").write_text(TEST)
    variants = tuple((run(f"echo '{program}' > program"), say("Done.")) for program in PROGRAMS)
    async with serving(ScriptedModel(Script(conversations=(Conversation(variants=variants),)))) as url:
        handle = await cluster.start(
            "voided",
            url,
            environment="task_folders",
            group_size=len(PROGRAMS),
            overrides={"path": str(folder), "host_programs": host_programs},
        )
        await handle.result()
    journal = cluster.open_journal()
    [(_, group)] = await scored_groups(journal, "voided")
    assert [sibling.score for sibling in group.siblings] == [0.0, 0.0, 0.0, 1.0]
    for number, said in enumerate(PROGRAMS.values()):
        rollout = f"voided/g000000/r{number}"
        reward = await journal.read_required(reward_key(rollout), RewardEntry)
        assert (reward.verifier_failed is None) if said is None else said in (reward.verifier_failed or "")
        end = await read_end(journal, rollout)
        assert end is not None
        labels = disturbances_of(end.summary, ())
        assert labels == (() if said is None else (Disturbance.VERIFIER_FAILED,))
