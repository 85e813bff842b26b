"""Identifiers in the order of what they name."""

from clotho.identifiers.ids import (
    call_id,
    call_order,
    caller_at,
    campaign_id,
    child_id,
    depth_of,
    group_of,
    is_rollout,
    original_of,
    place_of,
    sibling_number,
    sibling_of,
    wholes_of,
)
from clotho.identifiers.keys import call_key


def test_calls_are_in_the_order_in_which_they_were_made() -> None:
    """As text they aren't, beyond a hundred calls in a turn or ten thousand turns."""
    made = [call_id(turn, index) for turn in (3, 9_999, 10_000) for index in (0, 9, 10, 99, 100, 1_000)]
    assert sorted(made) != made
    assert sorted(made, key=call_order) == made
    assert all(call_order("") < call_order(call) for call in made)


def test_a_child_is_named_by_the_call_that_began_it() -> None:
    child = child_id("run/g000001/r3.1", call_id(4, 0))
    grandchild = child_id(child, call_id(0, 12))
    assert (child, grandchild) == ("run/g000001/r3.1~0004-00", "run/g000001/r3.1~0004-00~0000-12")
    assert [depth_of(each) for each in ("run/g000001/r3.1", child, grandchild)] == [0, 1, 2]
    assert group_of(grandchild) == "run/g000001" and is_rollout(grandchild)
    assert sibling_of(grandchild) == "run/g000001/r3.1" and sibling_number(grandchild) == 3
    assert original_of(child) == child and original_of("run/g000001/r3.1") == "run/g000001/r3"


def test_calls_of_children_come_between_those_of_the_rollout_whose_sandbox_they_share() -> None:
    owner = "run/g000001/r3"
    child = child_id(owner, call_id(4, 1))
    made = [
        place_of(owner, owner, call_id(4, 0)),
        place_of(owner, child, call_id(0, 0)),
        place_of(owner, child_id(child, call_id(0, 1)), call_id(7, 0)),
        place_of(owner, child, call_id(1, 0)),
        place_of(owner, owner, call_id(4, 2)),
    ]
    assert sorted({*made}, key=call_order) == made
    assert made[0] == "0004-00" and made[1] == "0004-01~0000-00"
    assert [caller_at(owner, place)[0] for place in made][:2] == [owner, child]
    assert call_key(owner, made[1]) == f"{child}/call/0000-00"


def test_a_rollout_is_part_of_its_parents_its_group_and_its_run() -> None:
    assert wholes_of("run") == ("run",)
    assert wholes_of(campaign_id("run")) == ("run/~campaign", "run")
    assert wholes_of("run/g000001") == ("run/g000001", "run")
    assert wholes_of("run/i-a.0/r3.1") == ("run/i-a.0/r3", "run/i-a.0", "run")
    assert wholes_of("run/g000001/r3.1~0004-00~0001-01") == (
        "run/g000001/r3.1~0004-00~0001-01",
        "run/g000001/r3.1~0004-00",
        "run/g000001/r3",
        "run/g000001",
        "run",
    )
