"""Epochs of verification that were given up: how many are borne."""

import pytest

from activities.reward import MOST_CONFLICTS, require_same_way
from clotho.errors import EnvironmentFailed
from clotho.rollouts.verification import EpochEntry


def conflicts(number: int, claim: int = 0) -> list[EpochEntry]:
    return [EpochEntry(reason="mv 1", lease=0, claim=claim, conflict=True)] * number


def test_code_that_differs_each_time_is_the_authors_failure() -> None:
    require_same_way(conflicts(MOST_CONFLICTS - 1))
    with pytest.raises(EnvironmentFailed, match="differs each time"):
        require_same_way(conflicts(MOST_CONFLICTS))


def test_conflicts_with_faults_between_them_arent() -> None:
    killed_each_time = [each for claim in range(10) for each in conflicts(1, claim)]
    require_same_way(killed_each_time)
    lost = EpochEntry(reason="the sandbox was lost", lease=0)
    require_same_way([*conflicts(3), lost, *conflicts(3)])
