"""The rules by which a finished group may be trained on: each raises GroupRejected.

`clotho.errors.Rejection` lists all reasons, and where each is raised.
"""

import math
from collections.abc import Iterable, Sequence
from typing import Protocol

from clotho.errors import GroupRejected, Rejection
from clotho.models.backend import step_of
from clotho.rollouts.branches import Branch
from clotho.training.siblings import Sibling

ROUNDING = 1e-3
"""Logprobs that servers round to just above zero are zero."""


class Versioned(Protocol):
    """A row whose weights may be known."""

    @property
    def weight_versions(self) -> tuple[str, ...]:
        """Weight versions of the trained tokens, as far as known, in the order of sampling."""

    @property
    def versions_known(self) -> bool:
        """Whether every trained token's is."""


def check_whole(group: str, siblings: Sequence[Sibling], size: int) -> None:
    """Refuse groups of another size ("incomplete"), and rewards that are no numbers ("non_finite")."""
    if len(siblings) != size:
        raise GroupRejected(
            Rejection.INCOMPLETE, f"{group} has {len(siblings)} scored rollouts and needs {size}"
        )
    for sibling in siblings:
        if not math.isfinite(sibling.summary.score):
            raise GroupRejected(
                Rejection.NON_FINITE, f"{sibling.summary.rollout} has the score {sibling.summary.score}"
            )


def check_sampled(group: str, siblings: Sequence[Sibling]) -> None:
    """Refuse groups with turns of chat mode ("chat_mode"), and those that sampled no token ("nothing_sampled")."""
    if any(sibling.chat for sibling in siblings):
        raise GroupRejected(Rejection.CHAT_MODE, f"{group} was sampled in chat mode, without tokens")
    if not any(sibling.branches for sibling in siblings):
        raise GroupRejected(Rejection.NOTHING_SAMPLED, f"{group}: no sibling sampled a token")


def check_logprobs(branch: Branch) -> None:
    """Refuse logprobs that are none ("non_finite"), or not of the distribution sampled from ("biased")."""
    name = f"{branch.rollout}, branch {branch.index}"
    sampled = [logprob for logprob, trained in zip(branch.logprobs, branch.mask, strict=True) if trained]
    bad = next((one for one in sampled if not math.isfinite(one) or one > ROUNDING), None)
    if bad is not None:
        raise GroupRejected(Rejection.NON_FINITE, f"{name} has a token of logprob {bad}")
    for span in branch.spans:
        # raw logprobs are those of temperature 1 without truncation: a trainer's ratios to them would be wrong
        if span.logprobs_mode != "processed" and (reshaping := span.sampling.distribution_changes):
            raise GroupRejected(
                Rejection.BIASED,
                f"{name}: turn {span.turn} was sampled with {', '.join(reshaping)}, "
                f"of which its logprobs aren't known to be ({span.logprobs_mode})",
            )


def check_lengths(group: str, lengths: Iterable[int], max_tokens: int | None) -> None:
    """Refuse groups with a row of `max_tokens` or more ("over_length")."""
    longest = max(lengths, default=0)
    if max_tokens is not None and longest >= max_tokens:
        raise GroupRejected(
            Rejection.OVER_LENGTH, f"{group}: a row has {longest} tokens, the trainer takes {max_tokens - 1}"
        )


def check_age(group: str, sampled_at: int | None, step: int, bound: int | None) -> None:
    """Refuse weights more than `bound` steps behind the trainer's `step` ("stale"), or "unknown_version"."""
    if bound is None:
        return
    if sampled_at is None:
        raise GroupRejected(
            Rejection.UNKNOWN_VERSION, f"{group}: not every token's weight version is a known number"
        )
    if step - sampled_at > bound:
        raise GroupRejected(
            Rejection.STALE, f"{group} was sampled {step - sampled_at} steps ago, the bound is {bound}"
        )


def oldest_step(rows: Iterable[Versioned]) -> int | None:
    """The first trainer's step that any trained token's weights were of; None unless all are known."""
    found = list(rows)
    versions = [version for row in found for version in row.weight_versions]
    if not versions or not all(row.versions_known for row in found):
        return None
    steps = [step for version in versions if (step := step_of(version)) is not None]
    return min(steps) if len(steps) == len(versions) else None
