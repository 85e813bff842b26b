"""TRL's GRPOTrainer: a `rollout_func` whose completions are Clotho's rollouts.

Nothing here imports TRL: only the trainer's process has it.
"""

import hashlib
import json
import logging
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Protocol

from clotho_client.client import RolloutClient
from clotho_client.orders import GroupAnswer, GroupOrder, Inference, Item, OrderState, RunOrder
from clotho_client.rows import Disturbance, TrainingRow

from clotho.errors import InvalidInput
from clotho.plugins.trainers.prompts import item_of

Output = dict[str, list[Any]]
RolloutFunction = Callable[[list[Any], Any], Output]
Publish = Callable[[Any], None]
"""Has the model server sample from the trainer's weights."""

log = logging.getLogger("clotho.plugins.trainers")


class Trainer(Protocol):
    """The parts of a GRPOTrainer that are used."""

    @property
    def model(self) -> Any: ...
    @property
    def state(self) -> Any: ...
    @property
    def args(self) -> Any: ...
    @property
    def accelerator(self) -> Any: ...
    @property
    def processing_class(self) -> Any: ...
    @property
    def num_generations(self) -> int: ...
    @property
    def num_generations_eval(self) -> int: ...


@dataclass(frozen=True)
class Completion:
    """One row of TRL: a prompt, its completion, and the completion's logprobs and mask."""

    prompt_ids: list[int]
    completion_ids: list[int]
    logprobs: list[float]
    env_mask: list[int]
    reward: float | None


def rollout_func(
    url: str,
    run: str,
    order: RunOrder,
    *,
    publish: Publish | None = None,
    exclude: Sequence[Disturbance] = (),
    token: str | None = None,
) -> RolloutFunction:
    """The `rollout_func` of a GRPOTrainer whose groups are ordered from the rollout API at `url`.

    The dataset's `prompt` is an item as JSON text. The run is `run`, that of evaluations `{run}-eval`; both as
    `order` says, with groups of the trainer's size. `publish` is called with the trainer before the first group of
    a step, in the main process. Give the trainer `reward_funcs=given_reward`.

    A group's name is made of the step and its item: a trainer that is started again from a checkpoint gets the
    rollouts that it had. A row is a rollout's branch with the most sampled tokens, the last of several: TRL takes
    one for each prompt. A failed rollout has no reward, which TRL leaves out of its group.

    Raises InvalidInput for chat mode, which has no tokens.
    """
    if order.endpoint.inference is Inference.CHAT:
        raise InvalidInput(
            f"{run}: chat mode has no tokens to train on: give its endpoint another `inference`"
        )
    rollouts = _Rollouts(RolloutClient(url, token), run, order, publish, tuple(exclude))
    return rollouts.generate


def given_reward(reward: Sequence[float | None], **_: Any) -> list[float | None]:
    """The reward function of a GRPOTrainer: the rollouts' own rewards."""
    return list(reward)


class _Rollouts:
    def __init__(
        self,
        client: RolloutClient,
        run: str,
        order: RunOrder,
        publish: Publish | None,
        exclude: tuple[Disturbance, ...],
    ) -> None:
        self._client = client
        self._run = run
        self._order = order
        self._publish = publish
        self._exclude = exclude
        self._opened: set[str] = set()
        self._published: int | None = None
        self._calls: dict[str, int] = {}
        """Calls for the last step of each mode."""
        self._steps: dict[str, int] = {}

    def generate(self, prompts: list[Any], trainer: Trainer) -> Output:
        """A row for each prompt, in their order."""
        training = bool(trainer.model.training)
        size = trainer.num_generations if training else trainer.num_generations_eval
        run = self._run if training else f"{self._run}-eval"
        step = int(trainer.state.global_step)
        if run not in self._opened:
            self._client.open_run(run, self._order.model_copy(update={"group_size": size}))
            self._opened.add(run)
        # before any order: groups start as soon as they are ordered
        self._publish_weights(trainer, step)
        rank = int(trainer.accelerator.process_index)
        names = group_names(step, self._call(run, step), rank, _groups(prompts, size))
        # all are ordered before the first is waited for: they are rolled out together
        for name, item in names.items():
            self._client.order(run, name, GroupOrder(item=item, step=step))
        pad = int(trainer.processing_class.pad_token_id)
        rows = []
        for name in names:
            answer = self._client.wait(run, name, exclude=self._exclude)
            rows += completions(answer, size, pad, float(trainer.args.temperature))
            if answer.state is OrderState.FINISHED:
                self._client.acknowledge(run, name)
            else:
                log.warning("%s has no rewards: %s, %s", answer.group, answer.reason, answer.detail)
        return {
            field: [getattr(row, field) for row in rows]
            for field in ("prompt_ids", "completion_ids", "logprobs", "env_mask", "reward")
        }

    def _publish_weights(self, trainer: Trainer, step: int) -> None:
        if self._publish is None or self._published == step:
            return
        if trainer.accelerator.is_main_process:
            self._publish(trainer)
        # another process would order groups that the old weights answer
        trainer.accelerator.wait_for_everyone()
        self._published = step

    def _call(self, run: str, step: int) -> int:
        """The number of calls for the run in this step, before this one."""
        self._calls[run] = self._calls.get(run, -1) + 1 if self._steps.get(run) == step else 0
        self._steps[run] = step
        return self._calls[run]


def group_names(step: int, call: int, rank: int, items: Sequence[Item]) -> dict[str, Item]:
    """The names of a call's groups, the same for the same items in any order."""
    seen: Counter[str] = Counter()
    names = {}
    for item in items:
        digest = hashlib.sha256(json.dumps(item, sort_keys=True).encode()).hexdigest()[:12]
        # the rank is in it: processes may have equal items, and each counts its own
        names[f"s{step}-c{call}-p{rank}-{digest}-{seen[digest]}"] = item
        seen[digest] += 1
    return names


def completions(answer: GroupAnswer, size: int, pad: int, temperature: float) -> list[Completion]:
    """The rows of a group, one for each of `size` rollouts. Raises InvalidInput for another temperature."""
    if answer.rows is None:
        # TRL has a slot for each prompt; None as the reward leaves it out of the group's mean
        return [_nothing(None, pad, None)] * size
    found = [list(rows) for _, rows in groupby(answer.rows, lambda row: row.rollout)]
    return [_completion(rows, pad, temperature) for rows in found]


def _completion(rows: Sequence[TrainingRow], pad: int, temperature: float) -> Completion:
    row = max(reversed(rows), key=lambda row: sum(row.mask))
    if not any(row.mask):
        return _nothing(row, pad, row.reward)
    # TRL divides logits by its own temperature: the ratio to other logprobs would be wrong
    if row.temperature != temperature:
        raise InvalidInput(
            f"{row.rollout} was sampled at temperature {row.temperature}, and the trainer's is {temperature}"
        )
    first = row.mask.index(True)
    return Completion(
        prompt_ids=list(row.ids[:first]) or [pad],
        completion_ids=list(row.ids[first:]),
        logprobs=list(row.logprobs[first:]),
        env_mask=[int(sampled) for sampled in row.mask[first:]],
        reward=row.reward,
    )


def _nothing(row: TrainingRow | None, pad: int, reward: float | None) -> Completion:
    """A row without anything to train on: TRL takes no empty one."""
    return Completion([pad], [pad], [0.0], [0], reward)


def _groups(prompts: Sequence[Any], size: int) -> list[Item]:
    """The item of each group of prompts, which TRL repeats. Raises InvalidInput for groups across processes."""
    items = [prompts[first] for first in range(0, len(prompts), size)]
    whole = [item for item in items for _ in range(size)]
    if whole != prompts:
        raise InvalidInput(
            f"{len(prompts)} prompts aren't whole groups of {size}: choose a batch for each process that is a "
            "multiple of num_generations"
        )
    return [item_of(prompt) for prompt in items]
