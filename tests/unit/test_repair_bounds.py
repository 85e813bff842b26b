"""The bound on a run's repairs grows with the run."""

import asyncio
from pathlib import Path

import pytest

from clotho.identifiers.ids import group_id, rollout_id
from clotho.identifiers.keys import campaign_request_prefix, group_repairs_prefix
from clotho.journal import Journal
from clotho.journal.folder import FilesystemStore
from clotho.rollouts.campaign import CampaignRequest
from clotho.rollouts.group import RepairBounds, RepairEntry, RepairRequest, SiblingFailure
from clotho.rollouts.task_queues import TaskQueues
from clotho.runs.repairs import claim_repair
from clotho.runs.request import run_manifest
from tests.support import ONE_FILE

RUN, GROUP_SIZE = "bounds", 4
FAILED_GROUP = group_id(RUN, 5_000)


@pytest.mark.parametrize(
    ("groups", "repaired", "is_repaired"),
    [(10, 199, True), (10, 200, False), (1_000, 200, True), (1_000, 999, True), (1_000, 1_000, False)],
)
@pytest.mark.slow
async def test_a_large_run_is_repaired_more_often_than_a_small_one(
    tmp_path: Path, groups: int, repaired: int, is_repaired: bool
) -> None:
    journal = Journal(FilesystemStore(tmp_path))
    manifest = run_manifest(ONE_FILE, RUN, "scripted", group_size=GROUP_SIZE)
    request = CampaignRequest(
        run=RUN,
        environment=ONE_FILE,
        groups=groups,
        group_size=GROUP_SIZE,
        limits=manifest.limits,
        task_queues=TaskQueues(),
    )
    await journal.append(campaign_request_prefix(RUN), request)

    async def repair(number: int) -> None:
        rollout = rollout_id(group_id(RUN, number), 0)
        earlier = RepairEntry(failure=_failure(rollout), turns=0, sampled_tokens=0, continued_as=rollout)
        await journal.write(f"{group_repairs_prefix(group_id(RUN, number))}000-000", earlier)

    await asyncio.gather(*map(repair, range(repaired)))
    failed = rollout_id(FAILED_GROUP, 1)
    claimed = await claim_repair(
        journal,
        manifest,
        RepairRequest(
            run=RUN,
            group=FAILED_GROUP,
            attempt=0,
            number=0,
            failure=_failure(failed),
            from_scratch=False,
            bounds=RepairBounds(),
        ),
    )
    assert claimed == (failed if is_repaired else None)


def _failure(rollout: str) -> SiblingFailure:
    return SiblingFailure(workflow=rollout, kind="SandboxLost", reason="by a test")
