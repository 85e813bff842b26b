"""slime: a function for `--custom-generate-function-path` whose samples are Clotho's rollouts.

Nothing here imports slime: its samples are copies of those that it passes.
"""

import asyncio
import copy
from collections.abc import Awaitable, Callable, Sequence
from itertools import groupby
from statistics import mean, stdev
from typing import Any

from clotho_client.client import AsyncRolloutClient
from clotho_client.orders import GroupAnswer, GroupOrder, RunOrder
from clotho_client.rows import Disturbance, Outcome, TrainingRow

from clotho.errors import InvalidInput
from clotho.plugins.trainers.prompts import item_of

Generate = Callable[..., Awaitable[list[Any]]]
SPREAD_FLOOR = 1e-6
"""Added to the deviation that rewards are divided by, as slime does."""


def generate_function(
    url: str,
    run: str,
    order: Callable[[Any], RunOrder],
    *,
    exclude: Sequence[Disturbance] = (),
    token: str | None = None,
) -> Generate:
    """The function that rolls samples out through the rollout API at `url`. Evaluations are refused.

    A sample's prompt is an item as JSON text. `order` is called once, with slime's arguments. slime's groups are
    Clotho's, by their `group_index`, which its checkpoints keep: a trainer that is started again gets the rollouts
    that it had. A rollout has a sample for each of its branches: give slime `keep_finished` and `group_rewards`.
    """
    return _Rollouts(AsyncRolloutClient(url, token), run, order, tuple(exclude)).generate


def keep_finished(args: Any, group: Sequence[Sequence[Any]], **_: Any) -> bool:
    """A `--dynamic-sampling-filter-path`: a group without rewards is replaced by another, and is never one of 0."""
    return all(sample.reward is not None for samples in group for sample in samples)


def group_rewards(args: Any, samples: Sequence[Any]) -> tuple[list[float], list[float]]:
    """A `--custom-reward-post-process-path`: rewards less their group's mean, each rollout counted once.

    slime's own would take the mean of the whole batch where a rollout has several samples.
    """
    rewards = [float(sample.reward) for sample in samples]
    groups: dict[int, dict[int, float]] = {}
    for sample in samples:
        groups.setdefault(sample.group_index, {})[sample.rollout_id] = float(sample.reward)
    centred = []
    for sample in samples:
        siblings = list(groups[sample.group_index].values())
        spread = stdev(siblings) if args.grpo_std_normalization and len(siblings) > 1 else 1.0
        floor = SPREAD_FLOOR if args.grpo_std_normalization else 0.0
        centred.append((sample.reward - mean(siblings)) / (spread + floor))
    return rewards, centred


class _Rollouts:
    def __init__(
        self,
        client: AsyncRolloutClient,
        run: str,
        order: Callable[[Any], RunOrder],
        exclude: tuple[Disturbance, ...],
    ) -> None:
        self._client = client
        self._run = run
        self._order = order
        self._exclude = exclude
        self._opened = False
        self._opening = asyncio.Lock()

    async def generate(
        self, args: Any, sample: Any, sampling_params: dict[str, Any], evaluation: bool = False
    ) -> list[Any]:
        """The samples of one rollout."""
        if evaluation:
            raise InvalidInput("slime's evaluations have no names of their own: evaluate with `clotho run`")
        size = int(args.n_samples_per_prompt)
        # many calls run at once: the first of them opens the run
        async with self._opening:
            if not self._opened:
                order = self._order(args).model_copy(update={"group_size": size})
                await self._client.open_run(self._run, order)
                self._opened = True
        name = f"g{sample.group_index}"
        await self._client.order(self._run, name, GroupOrder(item=item_of(sample.prompt)))
        answer = await self._client.wait(self._run, name, self._exclude)
        made = samples_of(answer, sample, size, float(sampling_params["temperature"]))
        if answer.rows is not None:
            await self._client.acknowledge(self._run, name)
        return made


def samples_of(answer: GroupAnswer, sample: Any, size: int, temperature: float) -> list[Any]:
    """The samples of the sibling that `sample` stands for, one for each of its branches.

    Raises InvalidInput for another temperature than the trainer's.
    """
    if answer.rows is None:
        return [_nothing(sample, None, sample.Status.ABORTED)]
    rollouts = [list(rows) for _, rows in groupby(answer.rows, lambda row: row.rollout)]
    return [_sample(sample, row, temperature) for row in rollouts[sample.index % size]]


def _sample(sample: Any, row: TrainingRow, temperature: float) -> Any:
    ended = row.outcome is Outcome.COMPLETED
    status = sample.Status.COMPLETED if ended else sample.Status.TRUNCATED
    if not any(row.mask):
        return _nothing(sample, row.reward, status)
    if row.temperature != temperature:
        raise InvalidInput(
            f"{row.rollout} was sampled at temperature {row.temperature}, and the trainer's is {temperature}"
        )
    first = row.mask.index(True)
    made = _copy(sample)
    made.tokens = list(row.ids)
    made.response_length = len(row.ids) - first
    made.loss_mask = [int(sampled) for sampled in row.mask[first:]]
    made.rollout_log_probs = list(row.logprobs[first:])
    made.reward, made.status = row.reward, status
    made.weight_versions = list(row.weight_versions)
    made.metadata["clotho_rollout"] = row.rollout
    return made


def _nothing(sample: Any, reward: float | None, status: Any) -> Any:
    """A sample without anything to train on."""
    made = _copy(sample)
    made.tokens, made.response_length = [0, 0], 1
    made.loss_mask, made.rollout_log_probs = [0], [0.0]
    made.reward, made.status, made.remove_sample = reward, status, True
    return made


def _copy(sample: Any) -> Any:
    made = copy.copy(sample)
    made.metadata = dict(sample.metadata)
    # slime takes samples of one rollout_id for branches of one rollout
    made.rollout_id = sample.index
    return made
