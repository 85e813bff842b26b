"""Tinker: rows as what `TrainingClient.forward_backward` takes."""

from collections.abc import Sequence
from statistics import mean

import tinker
from clotho_client.orders import GroupAnswer
from clotho_client.rows import TrainingRow


def datums(answer: GroupAnswer) -> list[tinker.Datum]:
    """A datum for each row of a group that can be trained on, none for a refused group.

    The advantage is the reward less the mean of the group's rollouts, each counted once. The datums are for the
    losses `importance_sampling` and `ppo`, which leave tokens of advantage 0 alone.
    """
    rows = answer.rows or ()
    rewards = {row.rollout: row.reward for row in rows}
    return [
        datum(row, row.reward - mean(rewards.values())) for row in rows if len(row.ids) > 1 and any(row.mask)
    ]


def datum(row: TrainingRow, advantage: float) -> tinker.Datum:
    """A row of two tokens or more: each is predicted from those before it, so all is shifted by one."""
    return tinker.Datum(
        model_input=tinker.ModelInput.from_ints(list(row.ids[:-1])),
        loss_fn_inputs={
            "target_tokens": list(row.ids[1:]),
            "logprobs": _shifted(row.logprobs),
            "advantages": _shifted([advantage * sampled for sampled in row.mask]),
        },
    )


def _shifted(values: Sequence[float]) -> list[float]:
    return [float(value) for value in values[1:]]
