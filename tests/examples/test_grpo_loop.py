"""The whole loop, from drawn items to weights that are sampled from, over a death of its trainer."""

import asyncio

import pytest

from examples.grpo_tiny.chain import Training, chain_on
from examples.grpo_tiny.fates import fates_of
from examples.grpo_tiny.held_out import sampled_version
from examples.grpo_tiny.kills import Strike, train
from examples.grpo_tiny.train import versions_of
from tests.cluster import Cluster

SHORT = Training(run="grpo-loop", steps=6, group_size=2, batch_size=4, open_groups=2)


@pytest.mark.slow
async def test_weights_advance_and_each_group_is_trained_on_once_over_a_kill(cluster: Cluster) -> None:
    said: list[str] = []
    async with chain_on(cluster, SHORT) as chain:
        (kill,) = await train(chain, [Strike("trainer", step=3)], said.append)
        assert await sampled_version(chain) == "6"
        fates = await fates_of(chain)
        batches = await asyncio.to_thread(lambda: list(chain.steps.batches()))
        reports = await asyncio.to_thread(chain.steps.reports)
    assert (kill.part, said) == ("trainer", ["in step 3, killed and started again: trainer"])
    versions = [versions_of(batch) for batch in batches]
    assert versions[0] == (0,) and versions[-1][-1] > 0, versions
    assert all(max(sampled) < step for step, sampled in enumerate(versions, 1)), versions
    assert [report.step for report in reports] == [1, 2, 3, 4, 5, 6]
    assert [report.versions for report in reports] == versions
    assert all(report.drift < 0.01 for report in reports if report.lag == 0), reports
    assert (fates.trained, fates.trained_twice, fates.lost) == (12, (), ())
    assert fates.accepted == fates.trained + fates.waiting
    assert fates.drawn == fates.accepted + fates.unfinished + sum(fates.dropped.values())
