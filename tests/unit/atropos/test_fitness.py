"""Staleness: by the server's versions and by the trainer's steps, and refused where neither is known."""

import pytest

from clotho.atropos.fitness import check_staleness
from clotho.atropos.ledger import Claim
from clotho.atropos.scored import Row, Wave
from clotho.errors import Unfit

CLAIM = Claim(number=0, group="run/i-a.0", item={"id": "a"}, step=2)


def waves(*versions: tuple[str, ...], known: bool = True, tokens: bool = True) -> tuple[Wave, ...]:
    ids = [1, 2] if tokens else []
    rows = tuple(Row(ids, ids, [-1.0] * len(ids), (), version, known) for version in versions)
    return (Wave("run/i-a.0", rows, (0.0,) * len(rows), {}),)


@pytest.mark.parametrize(
    ("found", "step", "reason"),
    [
        (waves(("7",), ("8",)), 9, None),
        (waves(("7",), ("8",)), 10, "stale"),
        (waves(("step:7",), ("step:8",)), 9, None),
        (waves(("step:7", "step:8")), 10, "stale"),
        (waves(("9",), ("step:7",)), 10, "stale"),
        (waves(("9",), ("10",), known=False), 10, "unknown_version"),
        (waves(("ab12",)), 10, "unknown_version"),
        (waves(()), 2, "unknown_version"),
        (waves((), tokens=False), 4, None),
        (waves((), tokens=False), 5, "stale"),
    ],
)
def test_a_bound_is_on_the_oldest_token(found: tuple[Wave, ...], step: int, reason: str | None) -> None:
    if reason is None:
        return check_staleness(CLAIM, found, step, 2)
    with pytest.raises(Unfit) as refused:
        check_staleness(CLAIM, found, step, 2)
    assert refused.value.reason == reason


def test_without_a_bound_everything_is_taken() -> None:
    check_staleness(CLAIM, waves(()), 99, None)
