"""Identifiers in the order of what they name."""

from clotho.identifiers.ids import call_id, call_order


def test_calls_are_in_the_order_in_which_they_were_made() -> None:
    """As text they aren't, beyond a hundred calls in a turn or ten thousand turns."""
    made = [call_id(turn, index) for turn in (3, 9_999, 10_000) for index in (0, 9, 10, 99, 100, 1_000)]
    assert sorted(made) != made
    assert sorted(made, key=call_order) == made
    assert all(call_order("") < call_order(call) for call in made)
