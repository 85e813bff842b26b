"""Checks of finished groups before delivery: staleness, and reasons for which Atropos drops groups silently."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from clotho.errors import GroupRejected, Rejection
from clotho.plugins.atropos.scored import BranchGroup, oldest_version
from clotho.runs.ledger import Claim
from clotho.training.fitness import check_age


@dataclass(frozen=True)
class TrainerLimits:
    """Requirements of the trainer and of the configuration."""

    group_size: int
    max_token_len: int
    """Rows this long or longer are refused; 0 or less: no bound."""
    differing_scores: bool


def check_staleness(claim: Claim, branch_groups: Sequence[BranchGroup], step: int, bound: int | None) -> None:
    """Check the age of the weights that sampled a group; without tokens, that of the step that drew its item.

    Raises GroupRejected for weights more than `bound` steps behind the trainer's `step`, and for unknown versions.
    """
    tokens = any(row.tokens for branch_group in branch_groups for row in branch_group.rows)
    version = oldest_version(branch_groups) if tokens else claim.step
    check_age(claim.group, version, step, bound)


def check_deliverable(claim: Claim, groups: Sequence[dict[str, Any]], limits: TrainerLimits) -> None:
    """Raise GroupRejected for each group that BaseEnv drops without a reason."""
    if not groups:
        raise GroupRejected(Rejection.WITHHELD, f"{claim.group}: the environment's hooks returned nothing")
    for group in groups:
        rows = len(group.get("tokens", ()))
        size = group["group_overrides"].get("group_size", limits.group_size)
        if rows != size:
            raise GroupRejected(
                Rejection.WRONG_SIZE, f"{claim.group} has {rows} rows, groups of {size} are registered"
            )
        if limits.differing_scores and len(set(group["scores"])) == 1:
            raise GroupRejected(Rejection.SAME_SCORES, f"{claim.group}: every score is {group['scores'][0]}")
        longest = max(map(len, group["tokens"]), default=0)
        # BaseEnv's own comparison: a row of exactly max_token_len is too long
        if 0 < limits.max_token_len <= longest:
            taken = limits.max_token_len - 1
            raise GroupRejected(
                Rejection.OVER_LENGTH, f"{claim.group}: {longest} tokens, the trainer takes {taken}"
            )
