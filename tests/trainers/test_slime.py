"""Rollouts as slime takes them: samples, groups without rewards, and rewards of rollouts with several samples."""

import asyncio
import json
from types import SimpleNamespace
from typing import Any

import pytest
from clotho_client.orders import GroupAnswer, OrderState

from clotho.embedded.model import EmbeddedModelServer
from clotho.errors import InvalidInput
from clotho.plugins.trainers.slime import generate_function, group_rewards, keep_finished, samples_of
from clotho.rollouts.outcome import Outcome
from clotho.runs.groups import scored_groups
from tests.cluster import Cluster
from tests.orders.service import file_item, file_tasks, serving_rollouts
from tests.trainers.samples import Sample, Status
from tests.trainers.test_trl import answer, row

SIZE = 2
PARAMETERS = {"temperature": 1.0}


def test_each_branch_of_a_sibling_is_a_sample() -> None:
    group = answer(row(0), row(1, reward=1.0), row(1, branch=1, outcome=Outcome.LIMIT_REACHED, reward=1.0))
    (first,) = samples_of(group, Sample(group_index=3, index=6, metadata={"of": "the item"}), SIZE, 1.0)
    assert (first.tokens, first.response_length, first.loss_mask) == ([1, 2, 3, 4], 3, [1, 0, 1])
    assert (first.rollout_log_probs, first.reward, first.status) == (
        [-0.5, 0.0, -0.25],
        0.5,
        Status.COMPLETED,
    )
    assert first.metadata == {"of": "the item", "clotho_rollout": "run/i-a.0/r0"}
    second = samples_of(group, Sample(group_index=3, index=7), SIZE, 1.0)
    assert [each.rollout_id for each in second] == [7, 7]
    assert [each.status for each in second] == [Status.COMPLETED, Status.TRUNCATED]


def test_what_has_no_tokens_is_masked() -> None:
    empty = row(0, ids=(), mask=(), logprobs=(), sampled_by=None, temperature=None)
    (made,) = samples_of(answer(empty), Sample(index=0), 1, 1.0)
    assert (made.remove_sample, made.loss_mask, made.reward, made.status) == (
        True,
        [0],
        0.5,
        Status.COMPLETED,
    )


def test_a_group_that_failed_is_left_out() -> None:
    refused = GroupAnswer(name="a", group="run/i-a.0", state=OrderState.REFUSED, reason="infrastructure")
    failed = samples_of(refused, Sample(index=0), SIZE, 1.0)
    finished = samples_of(answer(row(0), row(1)), Sample(index=0), SIZE, 1.0)
    assert [(each.reward, each.status, each.loss_mask) for each in failed] == [(None, Status.ABORTED, [0])]
    assert not keep_finished(None, [failed, failed])
    assert keep_finished(None, [finished, finished])


def test_another_temperature_is_refused() -> None:
    with pytest.raises(InvalidInput, match=r"sampled at temperature 1\.0, and the trainer's is 0\.7"):
        samples_of(answer(row(0)), Sample(index=0), 1, 0.7)


@pytest.mark.parametrize(("normalized", "scale"), [(False, 1.0), (True, 2**-0.5 + 1e-6)])
def test_a_rollout_counts_once_in_its_groups_mean(normalized: bool, scale: float) -> None:
    samples = [
        Sample(group_index=group, rollout_id=rollout, reward=reward)
        for group, rollout, reward in ((0, 0, 0.0), (0, 1, 1.0), (0, 1, 1.0), (1, 2, 5.0), (1, 3, 5.0))
    ]
    rewards, centred = group_rewards(SimpleNamespace(grpo_std_normalization=normalized), samples)
    assert rewards == [0.0, 1.0, 1.0, 5.0, 5.0]
    assert centred == pytest.approx([-0.5 / scale, 0.5 / scale, 0.5 / scale, 0.0, 0.0])


async def test_a_trainer_that_is_started_again_gets_what_it_had(
    cluster: Cluster, embedded_model: EmbeddedModelServer
) -> None:
    run, arguments = "slime-again", SimpleNamespace(n_samples_per_prompt=SIZE)
    prompts = [json.dumps(file_item(number)) for number in range(2)]
    async with serving_rollouts(cluster) as service:

        async def life() -> list[list[Any]]:
            generate = generate_function(service.url, run, lambda _: file_tasks(embedded_model))
            samples = [
                Sample(group_index=index // SIZE, index=index, prompt=prompts[index // SIZE])
                for index in range(2 * SIZE)
            ]
            return await asyncio.gather(*(generate(arguments, each, PARAMETERS) for each in samples))

        first = await life()
        assert await life() == first
        generate = generate_function(service.url, run, lambda _: file_tasks(embedded_model))
        with pytest.raises(InvalidInput, match="evaluate with"):
            await generate(arguments, Sample(index=0), PARAMETERS, evaluation=True)
        with pytest.raises(InvalidInput, match="no item"):
            await generate(arguments, Sample(index=0, prompt="Do it."), PARAMETERS)
    groups = await scored_groups(cluster.open_journal(), run)
    scores = [summary.score for _, entry in groups for summary in entry.siblings]
    assert sorted(scores) == sorted(samples[0].reward for samples in first)
    assert len(scores) == 2 * SIZE
