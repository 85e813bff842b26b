"""Groups as rows: whole branch groups, masks, logprobs, and what is refused."""

import math
from typing import Any

import pytest

from clotho.errors import GroupRejected, Rejection
from clotho.models.backend import VersionSpan
from clotho.models.messages import ChatMessage
from clotho.models.sampling import Sampling
from clotho.plugins.atropos.scored import branch_group_for_reading, branch_groups_of, oldest_version
from clotho.rollouts.branches import Branch, SampledSpan
from clotho.rollouts.lease import Fidelity
from clotho.rollouts.outcome import Ending, Outcome
from clotho.rollouts.rollout import RolloutSummary
from clotho.runs.disturbances import Disturbance
from clotho.training.siblings import Exclusion, Sibling

GROUP = "run/i-a.0"
SAID = (ChatMessage(role="user", content="hi"), ChatMessage(role="assistant", content=None))


def summary(number: int, score: float = 0.0) -> RolloutSummary:
    return RolloutSummary(
        rollout=f"{GROUP}/r{number}",
        ending=Ending(outcome=Outcome.COMPLETED),
        score=score,
        turns=1,
        tool_calls=0,
        tool_errors=0,
        prompt_tokens=1,
        sampled_tokens=1,
        active_seconds=0.0,
    )


def branch(number: int, index: int = 0, **changes: Any) -> Branch:
    """Two tokens of a prompt, two sampled."""
    return Branch.model_validate(
        {
            "rollout": f"{GROUP}/r{number}",
            "index": index,
            "ids": (10 * index + 1, 2, 3, 4),
            "mask": (False, False, True, True),
            "logprobs": (0.0, 0.0, -0.5, -0.25),
            "spans": (span(),),
            "versions": (VersionSpan(version="7", start=2, end=4),),
            "messages": SAID,
            **changes,
        }
    )


def span(temperature: float = 1.0, mode: Any = "raw", **sampled: Any) -> SampledSpan:
    sampling = Sampling(temperature=temperature, **sampled)
    return SampledSpan(turn=0, start=2, end=4, sampling=sampling, logprobs_mode=mode, finish_reason="stop")


def sibling(number: int, *branches: Branch, score: float = 0.0, chat: bool = False) -> Sibling:
    return Sibling(summary(number, score), branches, SAID, Sampling(), chat)


def test_rows_hold_ids_where_trained_and_masks_elsewhere() -> None:
    (branch_group,) = branch_groups_of(GROUP, [sibling(0, branch(0), score=1.0), sibling(1, branch(1))], 2)
    wire = branch_group.wire()
    assert wire["group_id"] == GROUP
    assert wire["tokens"] == [[1, 2, 3, 4]] * 2
    assert wire["masks"] == [[-100, -100, 3, 4]] * 2
    assert wire["inference_logprobs"] == [[1.0, 1.0, -0.5, -0.25]] * 2
    assert wire["scores"] == [1.0, 0.0]
    assert wire["generation_params"]["weight_versions"] == [["7"], ["7"]]
    assert all("content" in message for row in wire["messages"] for message in row)
    assert wire["group_overrides"] == {}, "BaseEnv looks into it"


def test_every_wave_is_a_whole_group_with_the_same_scores() -> None:
    """A sibling without branch j has a fully masked row there, so that normalisation stays per rollout."""
    siblings = [
        sibling(0, branch(0), branch(0, 1), branch(0, 2), score=1.0),
        sibling(1, branch(1), score=0.5),
        sibling(2),
    ]
    branch_groups = branch_groups_of(GROUP, siblings, 3)
    assert [branch_group.group_id for branch_group in branch_groups] == [GROUP, f"{GROUP}~b1", f"{GROUP}~b2"]
    assert {len(branch_group.rows) for branch_group in branch_groups} == {3}
    assert {branch_group.scores for branch_group in branch_groups} == {(1.0, 0.5, 0.0)}
    trained = [
        [any(mask != -100 for mask in row.masks) for row in branch_group.rows]
        for branch_group in branch_groups
    ]
    assert trained == [[True, True, False], [True, False, False], [True, False, False]]
    for row in (row for branch_group in branch_groups for row in branch_group.rows):
        assert len(row.tokens) == len(row.masks) == len(row.logprobs) >= 2


def test_excluded_rollouts_have_masked_rows_and_say_why() -> None:
    lost = summary(0, 1.0).model_copy(update={"losses": (Fidelity.DIVERGED,)})
    siblings = [Sibling(lost, (branch(0),), SAID, Sampling(), False), sibling(1, branch(1))]
    diverged = frozenset({Disturbance.DIVERGED})
    (branch_group,) = branch_groups_of(GROUP, siblings, 2, exclusion=Exclusion(diverged))
    assert [any(mask != -100 for mask in row.masks) for row in branch_group.rows] == [False, True]
    assert branch_group.scores == (1.0, 0.0)
    assert branch_group.generation_params["excluded"] == [True, False]
    (branch_group,) = branch_groups_of(
        GROUP, siblings, 2, exclusion=Exclusion(frozenset({Disturbance.REPLAYED}), True)
    )
    assert branch_group.generation_params["excluded"] == [False, False]
    for exclusion, some in ((Exclusion(diverged, True), siblings), (Exclusion(diverged), siblings[:1])):
        with pytest.raises(GroupRejected) as rejected:
            branch_groups_of(GROUP, some, len(some), exclusion=exclusion)
        assert rejected.value.reason == "excluded"


def test_chat_mode_gives_empty_rows_that_say_so() -> None:
    (branch_group,) = branch_groups_of(GROUP, [sibling(0, chat=True), sibling(1, chat=True)], 2)
    wire = branch_group.wire()
    assert wire["tokens"] == wire["masks"] == wire["inference_logprobs"] == [[], []]
    assert wire["generation_params"]["trainable"] is False
    assert wire["messages"][0][1] == {"role": "assistant", "content": ""}


@pytest.mark.parametrize(
    ("siblings", "reason"),
    [
        ([sibling(0, branch(0))], "incomplete"),
        ([sibling(0, branch(0)), sibling(1, branch(1), score=math.nan)], "non_finite"),
        ([sibling(0, branch(0)), sibling(1, branch(1, logprobs=(0.0, 0.0, -math.inf, 0.0)))], "non_finite"),
        ([sibling(0, branch(0)), sibling(1, branch(1, logprobs=(0.0, 0.0, 0.5, 0.0)))], "non_finite"),
        (
            [
                sibling(0, branch(0)),
                sibling(1, branch(1, ids=(1,) * 9, mask=(True,) * 9, logprobs=(-1.0,) * 9)),
            ],
            "over_length",
        ),
        ([sibling(0, branch(0)), sibling(1, branch(1, spans=(span(0.5),)))], "biased"),
        ([sibling(0, branch(0)), sibling(1, branch(1, spans=(span(0.5, "unknown"),)))], "biased"),
        ([sibling(0, branch(0)), sibling(1, branch(1, spans=(span(top_p=0.9),)))], "biased"),
        ([sibling(0, branch(0)), sibling(1, branch(1, spans=(span(top_k=20),)))], "biased"),
        (
            [sibling(0, branch(0)), sibling(1, branch(1, spans=(span(extra_body={"min_tokens": 5}),)))],
            "biased",
        ),
        ([sibling(0), sibling(1)], "nothing_sampled"),
    ],
)
def test_what_no_trainer_should_see_is_refused(siblings: list[Sibling], reason: str) -> None:
    with pytest.raises(GroupRejected) as refused:
        branch_groups_of(GROUP, siblings, 2, max_tokens=9)
    assert refused.value.reason == reason


def test_logprobs_of_the_sampled_distribution_may_have_any_temperature() -> None:
    branch_groups = branch_groups_of(GROUP, [sibling(0, branch(0, spans=(span(0.5, "processed"),)))], 1)
    assert branch_groups[0].rows[0].logprobs[2] == -0.5


def test_a_filler_has_no_weight_version_and_hides_none() -> None:
    newer = branch(1, versions=(VersionSpan(version="9", start=2, end=4),))
    branch_groups = branch_groups_of(GROUP, [sibling(0, branch(0), branch(0, 1)), sibling(1, newer)], 2)
    assert oldest_version(branch_groups) == 7
    assert branch_groups[1].generation_params["weight_versions"] == [["7"], []]


@pytest.mark.parametrize(
    "versions", [(), (VersionSpan(version="7", start=2, end=3),), (VersionSpan(version="a", start=2, end=4),)]
)
def test_a_version_that_is_not_wholly_known_is_unknown(versions: tuple[VersionSpan, ...]) -> None:
    branch_groups = branch_groups_of(
        GROUP, [sibling(0, branch(0)), sibling(1, branch(1, versions=versions))], 2
    )
    assert oldest_version(branch_groups) is None


def test_an_unfit_group_can_still_be_read() -> None:
    branch_group = branch_group_for_reading(
        GROUP, [sibling(0, branch(0)), sibling(1, branch(1))], Rejection.BIASED
    )
    assert branch_group.wire()["tokens"] == [[], []]
    assert branch_group.generation_params["rejected"] == "biased"
