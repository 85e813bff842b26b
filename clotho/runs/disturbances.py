"""Disturbances of a scored rollout, by which inexact ones can be left out of training data."""

from collections.abc import Iterable, Sequence

from clotho_client.rows import Disturbance as Disturbance

from clotho.identifiers.ids import original_of
from clotho.rollouts.group import RepairEntry
from clotho.rollouts.outcome import UNPROVED, Outcome
from clotho.rollouts.rollout import RolloutSummary


def repairs_of(rollout: str, repairs: Sequence[RepairEntry]) -> tuple[RepairEntry, ...]:
    """The repairs of the group that led to this rollout."""
    return tuple(repair for repair in repairs if original_of(repair.failure.workflow) == original_of(rollout))


def disturbances_of(summary: RolloutSummary, repairs: Sequence[RepairEntry]) -> tuple[Disturbance, ...]:
    """Every disturbance of a rollout, once, in the order in which they are declared."""
    found = {Disturbance.SANDBOX_LOST} if summary.losses else set()
    # each fidelity but `exact` bears a disturbance's name
    found |= {kind for kind in Disturbance if kind in {loss.value for loss in summary.losses}}
    applies = {
        Disturbance.RESUMED: summary.resumed_turns > 0,
        Disturbance.REPAIRED: any(
            repair.continued_as == repair.failure.workflow == summary.rollout for repair in repairs
        ),
        Disturbance.REPLACED: summary.replacement_of is not None,
        Disturbance.UNPROVED: summary.ending.outcome is Outcome.POLICY_KILLED
        and summary.ending.limit in (None, UNPROVED),
        Disturbance.REWARD_ERROR: summary.reward_error,
        Disturbance.VERIFIER_FAILED: summary.verifier_failed,
        Disturbance.VERIFIED_AGAIN: summary.verified_again,
    }
    return tuple(kind for kind in Disturbance if kind in found or applies.get(kind, False))


def disturbances_with_children(
    summary: RolloutSummary, children: Iterable[RolloutSummary], repairs: Sequence[RepairEntry]
) -> tuple[Disturbance, ...]:
    """Disturbances of a rollout and of its children, on whose work its own depends."""
    found = {*disturbances_of(summary, repairs)}.union(*(disturbances_of(child, ()) for child in children))
    return tuple(kind for kind in Disturbance if kind in found)


def disturbances_from(names: str) -> tuple[Disturbance, ...]:
    """Parse comma-separated names. Raises ValueError that lists the known ones."""
    try:
        return tuple(Disturbance(name.strip()) for name in names.split(",") if name.strip())
    except ValueError as error:
        raise ValueError(f"{error}: there are {', '.join(Disturbance)}") from None
