"""Rollouts with children in delivered groups: whose tokens are trained on, and what disturbed them."""

import pytest

from clotho.atropos.scored import Sibling, branch_groups_of
from clotho.rollouts.lease import Fidelity
from clotho.rollouts.outcome import Ending, Outcome
from clotho.runs.disturbances import Disturbance
from tests.unit.atropos.test_metrics import GROUP, summary, transcript

COMPLETED = Ending(outcome=Outcome.COMPLETED)
CHILD = f"{GROUP}/r0~0000-00"


def siblings(attributed: bool) -> list[Sibling]:
    """Two rollouts, the first of which has delegated a task."""
    lost = (Fidelity.DIVERGED,)
    child = summary(0, COMPLETED, rollout=CHILD, parent=f"{GROUP}/r0", losses=lost)
    family = [(child, transcript(None, ()))]
    return [
        Sibling.of(summary(0, COMPLETED), transcript(None, ()), (), family, attributed),
        Sibling.of(summary(1, COMPLETED), transcript(None, ())),
    ]


@pytest.mark.parametrize(
    ("attributed", "sampled_by"),
    [
        (False, [[f"{GROUP}/r0", f"{GROUP}/r1"]]),
        (True, [[f"{GROUP}/r0", f"{GROUP}/r1"], [CHILD, None]]),
    ],
)
def test_a_childs_tokens_are_trained_on_where_they_are_attributed(
    attributed: bool, sampled_by: list[list[str | None]]
) -> None:
    groups = branch_groups_of(GROUP, siblings(attributed), 2)
    assert [group.generation_params["sampled_by"] for group in groups] == sampled_by
    for group in groups:
        assert group.scores == (0.0, 1.0)
        assert group.generation_params["children"] == [[CHILD], []]
        assert group.generation_params["rollouts"] == [f"{GROUP}/r0", f"{GROUP}/r1"]


def test_what_disturbed_a_child_disturbed_the_rollout() -> None:
    disturbed, other = siblings(attributed=False)
    assert disturbed.disturbances == (Disturbance.SANDBOX_LOST, Disturbance.DIVERGED)
    assert other.disturbances == ()
