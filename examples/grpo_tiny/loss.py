"""GRPO (arXiv 2402.03300, without a KL term) on batches as Atropos' API serves them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from examples.grpo_tiny.layers import Array
from examples.trainer.api import TrainingGroup

MASKED = -100
NO_SPREAD = 1e-6
"""Scores of a group that differ by less are the same: nothing is learned from them."""


@dataclass(frozen=True)
class Batch:
    """Rows of all groups, padded at their ends; what concerns tokens leaves out each row's first."""

    tokens: npt.NDArray[np.int64]
    """(rows, length)"""
    trained: npt.NDArray[np.bool_]
    """(rows, length - 1)"""
    sampled_logprobs: Array
    """(rows, length - 1); 0 where not trained."""
    advantages: Array
    """(rows,)"""
    mean_score: float
    trained_tokens: int
    """Trained tokens of the whole batch, in each of its parts too: losses are a mean over them."""

    def parts(self, rows: int) -> Iterator["Batch"]:
        """The same batch a few rows at a time, each part as long as it must be; their losses add up to its own.

        Rows without an advantage are in none: they add nothing to it.
        """
        learned = np.flatnonzero(self.advantages)
        for first in range(0, len(learned), rows):
            part = learned[first : first + rows]
            length = 2 + int(np.flatnonzero(self.trained[part].any(axis=0)).max(initial=0))
            yield replace(
                self,
                tokens=self.tokens[part, :length],
                trained=self.trained[part, : length - 1],
                sampled_logprobs=self.sampled_logprobs[part, : length - 1],
                advantages=self.advantages[part],
            )


@dataclass(frozen=True)
class Loss:
    value: float
    by_logprobs: Array
    """Gradient of the loss by logprobs, (rows, length - 1)."""
    clipped: float
    """Share of the batch's trained tokens whose ratio the clip holds."""
    largest_drift: float
    """The largest change of a trained token's logprob since it was sampled."""


def batch_of(groups: Sequence[TrainingGroup], dtype: npt.DTypeLike = np.float32) -> Batch:
    """Advantages are normalised within each group. Raises ValueError for a group without logprobs."""
    rows = [row for group in groups for row in group.tokens]
    masks = [row for group in groups for row in group.masks]
    logprobs = [row for group in groups for row in _logprobs(group)]
    length = max(map(len, rows))
    tokens = np.array([row + [0] * (length - len(row)) for row in rows], np.int64)
    trained = np.array([[mask != MASKED for mask in row] + [False] * (length - len(row)) for row in masks])
    sampled = np.array([row + [0.0] * (length - len(row)) for row in logprobs], dtype)
    scores = [score for group in groups for score in group.scores]
    return Batch(
        tokens=tokens,
        trained=trained[:, 1:],
        sampled_logprobs=np.where(trained, sampled, 0)[:, 1:],
        advantages=np.concatenate([group_advantages(group.scores) for group in groups]).astype(dtype),
        mean_score=sum(scores) / len(scores),
        trained_tokens=max(1, int(trained[:, 1:].sum())),
    )


def group_advantages(scores: Sequence[float]) -> Array:
    """(score - mean) / standard deviation; zeros where all are the same."""
    centred = np.array(scores) - np.mean(scores)
    spread = centred.std()
    return centred / spread if spread > NO_SPREAD else np.zeros_like(centred)


def grpo_loss(batch: Batch, logprobs: Array, clip: float) -> Loss:
    """The clipped surrogate, a mean over all trained tokens of the batch: -min(r A, clip(r, 1 ± `clip`) A)."""
    advantages = batch.advantages[:, None]
    drift = np.where(batch.trained, logprobs - batch.sampled_logprobs, 0)
    ratio = np.exp(drift)
    held = np.where(advantages > 0, ratio > 1 + clip, ratio < 1 - clip) & batch.trained
    surrogate = np.minimum(ratio * advantages, np.clip(ratio, 1 - clip, 1 + clip) * advantages)
    count = batch.trained_tokens
    return Loss(
        value=-float(surrogate[batch.trained].sum()) / count,
        by_logprobs=np.where(batch.trained & ~held, -ratio * advantages / count, 0).astype(logprobs.dtype),
        clipped=float(held.sum()) / count,
        largest_drift=float(np.abs(drift).max(initial=0)),
    )


def _logprobs(group: TrainingGroup) -> list[list[float]]:
    if group.inference_logprobs is None:
        raise ValueError(f"{group.group_id or 'a group'} has no logprobs")
    return group.inference_logprobs
