"""What is refused: stale groups, by versions and steps, and logprobs that would bias a trainer."""

import pytest

from clotho.errors import GroupRejected, InvalidInput
from clotho.models.backend import Inference, LogprobsMode, ServerCapabilities
from clotho.models.sampling import Sampling
from clotho.plugins.atropos.admission import check_staleness
from clotho.plugins.atropos.scored import BranchGroup, Row
from clotho.plugins.atropos.trainable import check_sampling
from clotho.runs.ledger import Claim

CLAIM = Claim(number=0, group="run/i-a.0", item={"id": "a"}, step=2)


def branch_groups(
    *versions: tuple[str, ...], known: bool = True, tokens: bool = True
) -> tuple[BranchGroup, ...]:
    ids = [1, 2] if tokens else []
    rows = tuple(Row(ids, ids, [-1.0] * len(ids), (), version, known) for version in versions)
    return (BranchGroup("run/i-a.0", rows, (0.0,) * len(rows), {}),)


@pytest.mark.parametrize(
    ("found", "step", "reason"),
    [
        (branch_groups(("7",), ("8",)), 9, None),
        (branch_groups(("7",), ("8",)), 10, "stale"),
        (branch_groups(("step:7",), ("step:8",)), 9, None),
        (branch_groups(("step:7", "step:8")), 10, "stale"),
        (branch_groups(("9",), ("step:7",)), 10, "stale"),
        (branch_groups(("9",), ("10",), known=False), 10, "unknown_version"),
        (branch_groups(("ab12",)), 10, "unknown_version"),
        (branch_groups(()), 2, "unknown_version"),
        (branch_groups((), tokens=False), 4, None),
        (branch_groups((), tokens=False), 5, "stale"),
    ],
)
def test_a_bound_is_on_the_oldest_token(
    found: tuple[BranchGroup, ...], step: int, reason: str | None
) -> None:
    if reason is None:
        return check_staleness(CLAIM, found, step, 2)
    with pytest.raises(GroupRejected) as refused:
        check_staleness(CLAIM, found, step, 2)
    assert refused.value.reason == reason


def test_without_a_bound_everything_is_taken() -> None:
    check_staleness(CLAIM, branch_groups(()), 99, None)


def served(mode: LogprobsMode) -> ServerCapabilities:
    return ServerCapabilities(
        backend=Inference.SGLANG,
        base_url="http://host:8000/v1",
        renderer="generic",
        logprobs_mode=mode,
        rng_scope="sequence",
        context=None,
        weight_version=None,
    )


@pytest.mark.parametrize(
    ("sampling", "names"),
    [
        (Sampling(), ()),
        (Sampling(top_k=0, extra_body={"logit_bias": {}, "priority": 1}), ()),
        (Sampling(temperature=0.7), ("temperature",)),
        (Sampling(top_p=0.9, top_k=20, min_p=0.1), ("top_p", "top_k", "min_p")),
        (Sampling(repetition_penalty=1.1), ("repetition_penalty",)),
        (Sampling(extra_body={"logit_bias": {"5": 1}, "min_tokens": 3}), ("logit_bias", "min_tokens")),
        (Sampling(temperature=None), ("temperature",)),
    ],
)
def test_what_reshapes_a_distribution_needs_its_logprobs(sampling: Sampling, names: tuple[str, ...]) -> None:
    assert sampling.distribution_changes == names
    check_sampling(sampling, served("processed"))
    modes: tuple[LogprobsMode, ...] = ("raw", "unknown")
    for mode in modes:
        if not names:
            check_sampling(sampling, served(mode))
            continue
        with pytest.raises(InvalidInput, match=f"{names[0]}.*processed_logprobs"):
            check_sampling(sampling, served(mode))
