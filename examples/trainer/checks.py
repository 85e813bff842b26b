"""Checks of the properties of a batch that trainers rely on."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import isfinite

from examples.trainer.api import TrainingGroup

MASKED = -100
MASKED_LOGPROB = 1.0
STEP = "step:"
"""Before a version that is the trainer's step, where the server of the weights named none."""


@dataclass(frozen=True)
class Limits:
    batch_size: int
    max_token_len: int
    oldest_version: int | None = None
    """The least weight version that a trained token may come from; None: any, known or not."""


@dataclass(frozen=True)
class BatchReport:
    groups: int
    rows: int
    tokens: int
    trained: int
    mean_score: float
    versions: tuple[str, ...]
    faults: tuple[str, ...]


def check_batch(batch: Sequence[TrainingGroup], limits: Limits) -> BatchReport:
    rows = sum(len(group.tokens) for group in batch)
    scores = [score for group in batch for score in group.scores]
    faults = [] if rows == limits.batch_size else [f"{rows} rows instead of {limits.batch_size}"]
    for number, group in enumerate(batch):
        faults += [f"{group.group_id or f'group {number}'}: {fault}" for fault in group_faults(group, limits)]
    versions = {version for group in batch for row in group.weight_versions or () for version in row}
    return BatchReport(
        groups=len(batch),
        rows=rows,
        tokens=sum(len(row) for group in batch for row in group.tokens),
        trained=sum(mask != MASKED for group in batch for row in group.masks for mask in row),
        mean_score=sum(scores) / len(scores) if scores else 0.0,
        versions=tuple(sorted(versions, key=lambda version: (len(version), version))),
        faults=tuple(faults),
    )


def group_faults(group: TrainingGroup, limits: Limits) -> Iterator[str]:
    rows = len(group.tokens)
    if (group.generation_params or {}).get("trainable") is False:
        yield "is marked as unfit for training"
    if not all(map(isfinite, group.scores)):
        yield "a score is not finite"
    if group.inference_logprobs is None:
        yield "has no logprobs"
    columns = {"masks": len(group.masks), "scores": len(group.scores)}
    if group.inference_logprobs is not None:
        columns["inference_logprobs"] = len(group.inference_logprobs)
    if set(columns.values()) != {rows}:
        yield f"{rows} rows of tokens with {columns}"
        return
    if all(mask == MASKED for row in group.masks for mask in row):
        yield "nothing is trained on"
    for row in range(rows):
        logprobs = group.inference_logprobs[row] if group.inference_logprobs is not None else None
        for fault in row_faults(group.tokens[row], group.masks[row], logprobs, limits):
            yield f"row {row}: {fault}"
    if limits.oldest_version is not None:
        yield from version_faults(group, limits.oldest_version)


def row_faults(
    tokens: Sequence[int], masks: Sequence[int], logprobs: Sequence[float] | None, limits: Limits
) -> Iterator[str]:
    if len(tokens) >= limits.max_token_len:
        yield f"{len(tokens)} tokens, {limits.max_token_len - 1} fit"
    if len(masks) != len(tokens) or (logprobs is not None and len(logprobs) != len(tokens)):
        yield f"{len(tokens)} tokens with {len(masks)} masks and {len(logprobs or ())} logprobs"
        return
    if any(mask not in (MASKED, token) for mask, token in zip(masks, tokens, strict=True)):
        yield "a mask is neither its token nor -100"
    for mask, logprob in zip(masks, logprobs or (), strict=logprobs is not None):
        if mask == MASKED and logprob != MASKED_LOGPROB:
            yield f"a masked token has the logprob {logprob}"
            return
        if mask != MASKED and not (isfinite(logprob) and logprob <= 0):
            yield f"a trained token has the logprob {logprob}"
            return


def version_faults(group: TrainingGroup, oldest: int) -> Iterator[str]:
    """Rows that are trained on must say which weights they come from; rows that are not, need not."""
    trained = [any(mask != MASKED for mask in row) for row in group.masks]
    versions = group.weight_versions or [[] for _ in trained]
    if len(versions) != len(trained):
        yield f"weight versions for {len(versions)} rows of {len(trained)}"
        return
    for row, (said, needed) in enumerate(zip(versions, trained, strict=True)):
        steps = [version.removeprefix(STEP) for version in said]
        if needed and not (steps and all(step.isdecimal() for step in steps)):
            yield f"row {row}: weight versions are not known"
        elif needed and min(map(int, steps)) < oldest:
            yield f"row {row}: sampled from weights {min(map(int, steps))}, {oldest} is the oldest allowed"
