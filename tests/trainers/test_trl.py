"""Rollouts as TRL takes them: rows, masks and rewards, and groups that a trainer gets again by their names.

TRL itself is tried in `tests/real_trl.py`.
"""

import asyncio
import json
from types import SimpleNamespace
from typing import Any

import pytest
from clotho_client.client import RolloutClient
from clotho_client.orders import GroupAnswer, GroupOrder, OrderState

from clotho.embedded.model import EmbeddedModelServer
from clotho.errors import InvalidInput
from clotho.models.backend import Inference
from clotho.models.endpoint import Endpoint
from clotho.plugins.trainers.trl import completions, given_reward, group_names, rollout_func
from clotho.processes.ports import free_port
from clotho.rollouts.outcome import Outcome
from clotho.runs.groups import scored_groups
from clotho.testing.scripted_model import serving
from clotho.training.rows import TrainingRow
from tests.cluster import Cluster
from tests.orders.service import file_item, file_tasks, serving_rollouts
from tests.token_servers import Relay

PAD, SIZE = 0, 2


def row(rollout: int, *, branch: int = 0, ids: tuple[int, ...] = (1, 2, 3, 4), **changes: Any) -> TrainingRow:
    """A prompt of one token, then two sampled ones around one of a tool."""
    fields: dict[str, Any] = {
        "group": "run/i-a.0",
        "item": "i-a",
        "rollout": f"run/i-a.0/r{rollout}",
        "branch": branch,
        "sampled_by": f"run/i-a.0/r{rollout}",
        "ids": ids,
        "mask": (False, True, False, True),
        "logprobs": (0.0, -0.5, 0.0, -0.25),
        "temperature": 1.0,
        "reward": 0.5,
        "outcome": Outcome.COMPLETED,
        "limit": None,
        **changes,
    }
    return TrainingRow.model_validate(fields)


def answer(*rows: TrainingRow) -> GroupAnswer:
    return GroupAnswer(name="a", group="run/i-a.0", state=OrderState.FINISHED, rows=rows)


def test_a_branch_is_split_at_its_first_sampled_token() -> None:
    first, second = completions(answer(row(0), row(1, reward=1.0)), SIZE, PAD, 1.0)
    assert (first.prompt_ids, first.completion_ids) == ([1], [2, 3, 4])
    assert (first.logprobs, first.env_mask, first.reward) == ([-0.5, 0.0, -0.25], [1, 0, 1], 0.5)
    assert second.reward == 1.0


def test_of_several_branches_that_with_the_most_sampled_tokens_is_taken() -> None:
    less = row(0, branch=1, ids=(9, 9, 9, 9), mask=(False, False, False, True))
    as_many = row(0, branch=2, ids=(5, 6, 7, 8))
    (found,) = completions(answer(row(0), less), 1, PAD, 1.0)
    assert found.completion_ids == [2, 3, 4]
    (found,) = completions(answer(row(0), as_many, less), 1, PAD, 1.0)
    assert found.completion_ids == [6, 7, 8]


def test_what_has_no_tokens_has_a_masked_one() -> None:
    empty = row(1, ids=(), mask=(), logprobs=(), sampled_by=None, temperature=None)
    _, found = completions(answer(row(0), empty), SIZE, PAD, 1.0)
    assert (found.prompt_ids, found.completion_ids, found.env_mask, found.reward) == ([PAD], [PAD], [0], 0.5)


def test_a_group_that_failed_has_no_rewards() -> None:
    refused = GroupAnswer(name="a", group="run/i-a.0", state=OrderState.REFUSED, reason="infrastructure")
    rows = completions(refused, SIZE, PAD, 1.0)
    assert [(each.completion_ids, each.env_mask, each.reward) for each in rows] == [([PAD], [0], None)] * SIZE
    assert given_reward(reward=[each.reward for each in rows], prompts=[]) == [None, None]


def test_another_temperature_is_refused() -> None:
    with pytest.raises(InvalidInput, match=r"sampled at temperature 1\.0, and the trainer's is 0\.7"):
        completions(answer(row(0)), 1, PAD, 0.7)


def trainer(step: int, training: bool = True, rank: int = 0) -> Any:
    """The parts of a GRPOTrainer that a rollout_func uses."""
    return SimpleNamespace(
        model=SimpleNamespace(training=training),
        state=SimpleNamespace(global_step=step),
        args=SimpleNamespace(temperature=1.0),
        accelerator=SimpleNamespace(
            process_index=rank, is_main_process=rank == 0, wait_for_everyone=lambda: None
        ),
        processing_class=SimpleNamespace(pad_token_id=PAD),
        num_generations=SIZE,
        num_generations_eval=1,
    )


def prompts(*numbers: int, size: int = SIZE) -> list[str]:
    return [json.dumps(file_item(number)) for number in numbers for _ in range(size)]


def test_a_name_is_made_of_the_step_the_call_the_process_and_the_item() -> None:
    one, other = file_item(1), file_item(2)
    names = group_names(3, 0, 1, [one, other, one])
    assert list(names.values()) == [one, other, one]
    assert group_names(3, 0, 1, [other, one, one]) == names, "a shuffled batch has the same groups"
    for changed in (group_names(4, 0, 1, [one]), group_names(3, 1, 1, [one]), group_names(3, 0, 0, [one])):
        assert not changed.keys() & names.keys()


def test_chat_mode_is_refused_before_training(embedded_model: EmbeddedModelServer) -> None:
    chat = Endpoint(base_url=f"{embedded_model.url}/v1", inference=Inference.CHAT)
    with pytest.raises(InvalidInput, match="chat mode has no tokens"):
        rollout_func("http://127.0.0.1:9", "trl-chat", file_tasks(embedded_model, endpoint=chat))


@pytest.mark.slow
async def test_a_trainer_that_is_started_again_gets_what_it_had(
    cluster: Cluster, embedded_model: EmbeddedModelServer
) -> None:
    run, order = "trl-again", file_tasks(embedded_model)
    published: list[int] = []
    async with serving_rollouts(cluster) as service:

        def life() -> Any:
            return rollout_func(
                service.url, run, order, publish=lambda one: published.append(one.state.global_step)
            )

        async def roll(function: Any, step: int, numbers: tuple[int, ...], training: bool = True) -> Any:
            asked = prompts(*numbers, size=SIZE if training else 1)
            return await asyncio.to_thread(function, asked, trainer(step, training))

        first = life()
        started = await roll(first, 0, (1, 2))
        stepped = await roll(first, 1, (1, 2))
        evaluated = await roll(first, 1, (3,), training=False)
        assert {key: len(values) for key, values in started.items()} == dict.fromkeys(started, 4)
        assert set(started) == {"prompt_ids", "completion_ids", "logprobs", "env_mask", "reward"}
        assert len(evaluated["reward"]) == 1
        again = life()
        assert await roll(again, 0, (1, 2)) == started
        assert await roll(again, 1, (1, 2)) == stepped
        assert published == [0, 1, 0, 1]
        undelivered = await asyncio.to_thread(RolloutClient(service.url).unacknowledged, run)
    assert undelivered == ()
    groups = await scored_groups(cluster.open_journal(), run)
    assert len(groups) == 4, "the same item in another step is another group"
    rewards = [summary.score for _, entry in groups for summary in entry.siblings]
    assert sorted(rewards) == sorted([*started["reward"], *stepped["reward"]])


@pytest.mark.slow
async def test_only_the_main_process_publishes_and_each_orders_its_own_groups(
    cluster: Cluster, embedded_model: EmbeddedModelServer
) -> None:
    published: list[int] = []
    async with serving_rollouts(cluster) as service:
        for rank in range(2):
            function = rollout_func(
                service.url,
                "trl-ranks",
                file_tasks(embedded_model),
                publish=lambda one: published.append(one.accelerator.process_index),
            )
            found = await asyncio.to_thread(function, prompts(1), trainer(0, rank=rank))
            assert len(found["reward"]) == SIZE
    assert published == [0]
    assert len(await scored_groups(cluster.open_journal(), "trl-ranks")) == 2


@pytest.mark.slow
async def test_a_group_that_is_given_up_has_no_rewards_and_says_why(
    cluster: Cluster, embedded_model: EmbeddedModelServer, caplog: pytest.LogCaptureFixture
) -> None:
    run, order = "trl-cancelled", file_tasks(embedded_model)
    ((name, item),) = group_names(0, 0, 0, [file_item(1)]).items()
    port = free_port()  # no group ends before the model's server is there
    endpoint = order.endpoint.model_copy(update={"base_url": f"http://127.0.0.1:{port}/v1"})
    order = order.model_copy(update={"endpoint": endpoint})
    async with serving_rollouts(cluster) as service:

        def cancel() -> None:
            with RolloutClient(service.url) as client:
                client.open_run(run, order)
                client.order(run, name, GroupOrder(item=item, step=0))
                client.cancel(run, name)

        await asyncio.to_thread(cancel)
        async with serving(Relay(embedded_model.url), port):
            roll = rollout_func(service.url, run, order)
            found = await asyncio.to_thread(roll, prompts(1, 2), trainer(0))
    assert found["reward"][:SIZE] == [None] * SIZE
    assert all(reward is not None for reward in found["reward"][SIZE:])
    assert "has no rewards: cancelled" in caplog.text


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ([*prompts(1), *prompts(2, size=1)], "whole groups of 2"),
        ([*prompts(1, size=1), *prompts(2, size=1)], "whole groups of 2"),
        (["Do it.", "Do it."], "no item"),
    ],
)
@pytest.mark.slow
async def test_prompts_that_are_no_groups_of_items_are_refused(
    cluster: Cluster, embedded_model: EmbeddedModelServer, given: list[str], why: str
) -> None:
    async with serving_rollouts(cluster) as service:
        function = rollout_func(service.url, "trl-refused", file_tasks(embedded_model))
        with pytest.raises(InvalidInput, match=why):
            await asyncio.to_thread(function, given, trainer(0))
