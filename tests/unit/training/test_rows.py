"""Neutral rows: what trainers and exporters are given of a finished group, and what none is given."""

import math

import pytest

from clotho.errors import GroupRejected
from clotho.models.backend import VersionSpan
from clotho.rollouts.group import GroupEntry
from clotho.rollouts.lease import Fidelity
from clotho.rollouts.outcome import Outcome
from clotho.runs.disturbances import Disturbance
from clotho.training.fitness import oldest_step
from clotho.training.rows import TrainingGroup, check_staleness, training_group
from clotho.training.siblings import ALL, Exclusion, Sibling
from tests.unit.atropos.test_scored import GROUP, branch, sibling, span, summary

ENTRY = GroupEntry(item={"id": "a"}, toolsets=(), siblings=())


def group_of(*siblings: Sibling, exclusion: Exclusion = ALL) -> TrainingGroup:
    return training_group(GROUP, ENTRY, siblings, exclusion=exclusion)


def test_each_branch_is_a_row_and_each_rollout_has_one() -> None:
    group = group_of(sibling(0, branch(0), branch(0, 1), score=1.0), sibling(1, score=0.5))
    assert [(row.rollout, row.branch, row.reward, row.sampled_by) for row in group.rows] == [
        (f"{GROUP}/r0", 0, 1.0, f"{GROUP}/r0"),
        (f"{GROUP}/r0", 1, 1.0, f"{GROUP}/r0"),
        (f"{GROUP}/r1", 0, 0.5, None),
    ]
    first, _, empty = group.rows
    assert (first.ids, first.mask) == ((1, 2, 3, 4), (False, False, True, True))
    assert first.logprobs == (0.0, 0.0, -0.5, -0.25)
    assert (first.temperature, first.logprobs_mode, first.outcome) == (1.0, "raw", Outcome.COMPLETED)
    assert (first.weight_versions, first.versions_known) == (("7",), True)
    assert (empty.ids, empty.mask, empty.logprobs) == ((), (), ())
    assert group.item == {"id": "a"}


def test_turns_sampled_differently_have_no_common_temperature() -> None:
    later = span(0.5, "processed").model_copy(update={"turn": 1})
    mixed = branch(0, spans=(span(1.0, "processed"), later))
    (row,) = group_of(sibling(0, mixed)).rows
    assert (row.temperature, row.logprobs_mode) == (None, "processed")


def test_an_excluded_rollout_is_marked_and_keeps_its_reward() -> None:
    lost = summary(0, 1.0).model_copy(update={"losses": (Fidelity.DIVERGED,), "resumed_turns": 2})
    siblings = (Sibling(lost, (branch(0),), (), None, False), sibling(1, branch(1)))
    marked = group_of(*siblings).rows[0]
    assert (marked.disturbances, marked.sandbox_losses, marked.resumed_turns) == (
        (Disturbance.SANDBOX_LOST, Disturbance.DIVERGED, Disturbance.RESUMED),
        (Fidelity.DIVERGED,),
        2,
    )
    assert marked.ids and not marked.excluded
    out = group_of(*siblings, exclusion=Exclusion(frozenset({Disturbance.DIVERGED}))).rows
    assert [(row.excluded, bool(row.ids), row.reward) for row in out] == [
        (True, False, 1.0),
        (False, True, 0.0),
    ]
    with pytest.raises(GroupRejected):
        group_of(*siblings, exclusion=Exclusion(frozenset({Disturbance.DIVERGED}), whole_groups=True))


@pytest.mark.parametrize(
    ("siblings", "reason"),
    [
        ((sibling(0, chat=True), sibling(1, branch(1))), "chat_mode"),
        ((sibling(0), sibling(1)), "nothing_sampled"),
        ((sibling(0, branch(0), score=math.inf),), "non_finite"),
        ((sibling(0, branch(0, logprobs=(0.0, 0.0, math.nan, 0.0))),), "non_finite"),
        ((sibling(0, branch(0, spans=(span(top_p=0.9),))),), "biased"),
    ],
)
def test_unfit_groups_are_refused(siblings: tuple[Sibling, ...], reason: str) -> None:
    with pytest.raises(GroupRejected) as refused:
        group_of(*siblings)
    assert refused.value.reason == reason


def test_the_oldest_token_decides_about_staleness() -> None:
    newer = branch(1, versions=(VersionSpan(version="step:9", start=2, end=4),))
    group = group_of(sibling(0, branch(0)), sibling(1, newer), sibling(2))
    assert oldest_step(group.rows) == 7
    check_staleness(group, 9, 2)
    check_staleness(group, 99, None)
    for found, reason in (
        (group, "stale"),
        (group_of(sibling(0, branch(0, versions=()))), "unknown_version"),
    ):
        with pytest.raises(GroupRejected) as refused:
            check_staleness(found, 10, 2)
        assert refused.value.reason == reason


def test_rows_survive_json() -> None:
    group = group_of(sibling(0, branch(0)))
    assert TrainingGroup.model_validate_json(group.model_dump_json()) == group
