"""A program that makes its tests fail earns 0, in place of leaving its whole group without rewards."""

from pathlib import Path

import pytest

from clotho.identifiers.rollout_keys import reward_key
from clotho.rollouts.verification import RewardEntry
from clotho.runs.disturbances import Disturbance, disturbances_of
from clotho.runs.groups import scored_groups
from clotho.runs.rollouts import read_end
from clotho.testing.script import Conversation, Script
from clotho.testing.scripted_model import ScriptedModel, serving
from tests.cluster import Cluster
from tests.tasks.making import make_task
from tests.workflows.scripts import run, say

TEST = "#!/bin/sh\nsh /work/program\ngrep -q right /work/answer && echo 1 > /logs/verifier/reward.txt\n"
TEST += "[ -s /logs/verifier/reward.txt ] || echo 0 > /logs/verifier/reward.txt\n"
PROGRAMS = ("rm -r /logs/verifier", "echo right > /work/answer")


@pytest.mark.slow
async def test_a_program_that_voids_its_verification_scores_0(cluster: Cluster, tmp_path: Path) -> None:
    folder = make_task(tmp_path / "task", '[environment]\ndocker_image = "debian:12"\n')
    (folder / "tests" / "test.sh").write_text(TEST)
    variants = tuple((run(f"echo '{program}' > /work/program"), say("Done.")) for program in PROGRAMS)
    async with serving(ScriptedModel(Script(conversations=(Conversation(variants=variants),)))) as url:
        handle = await cluster.start(
            "voided",
            url,
            environment="task_folders",
            group_size=2,
            overrides={"path": str(folder), "host_programs": True},
        )
        await handle.result()
    journal = cluster.open_journal()
    [(_, group)] = await scored_groups(journal, "voided")
    assert [sibling.score for sibling in group.siblings] == [0.0, 1.0]
    reward = await journal.read_required(reward_key("voided/g000000/r0"), RewardEntry)
    assert (
        reward.verifier_failed is not None and "neither reward.json nor reward.txt" in reward.verifier_failed
    )
    end = await read_end(journal, "voided/g000000/r0")
    assert end is not None and disturbances_of(end.summary, ()) == (Disturbance.VERIFIER_FAILED,)
