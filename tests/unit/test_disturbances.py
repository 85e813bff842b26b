"""Disturbances of a rollout, by which it can be left out."""

import pytest

from clotho.rollouts.outcome import UNPROVED, Ending, Outcome
from clotho.rollouts.rollout import RolloutSummary
from clotho.runs.disturbances import Disturbance, disturbances_of

KILLED = Outcome.POLICY_KILLED


@pytest.mark.parametrize(
    ("ending", "found"),
    [
        (Ending(outcome=KILLED, limit=UNPROVED), (Disturbance.UNPROVED,)),
        (Ending(outcome=KILLED), (Disturbance.UNPROVED,)),
        (Ending(outcome=KILLED, limit="memory"), ()),
        (Ending(outcome=KILLED, limit="disrupted"), ()),
        (Ending(outcome=Outcome.COMPLETED), ()),
    ],
)
def test_a_policy_that_nothing_proves_to_have_ended_its_sandboxes_is_marked(
    ending: Ending, found: tuple[Disturbance, ...]
) -> None:
    assert disturbances_of(RolloutSummary(rollout="r/g/r0", ending=ending, score=0.0), ()) == found
