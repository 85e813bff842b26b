"""Count of the model calls that a provider answered more than once."""

from collections.abc import Mapping, Sequence
from itertools import pairwise

from clotho.frozen_model import FrozenModel
from clotho.testing.provider import Call


class Bill(FrozenModel):
    """Calls to the model that were answered more than once."""

    repaid: int = 0
    died: int = 0
    """Answered again since the process that had asked was killed before it could write the answer."""
    hung_up: int = 0
    """Answered again after the rollout was ended on purpose, which hangs up on a call in flight."""


def duplicate_calls(
    calls: Sequence[Call], deaths: Sequence[float], *, ended_on_purpose: bool = False
) -> Bill:
    """Every answer to a key beyond its first is repaid, unless the one before could not have been written.

    That is so where its asker was killed since, or, if work was `ended_on_purpose`, had hung up; and where its
    entry wasn't there when the next was asked for.
    """
    by_key: Mapping[str, list[Call]] = {call.key: [] for call in calls}
    for call in calls:
        if call.answered:
            by_key[call.key].append(call)
    repaid = died = hung_up = 0
    for answered in by_key.values():
        for before, again in pairwise(answered):
            if again.journalled:
                repaid += 1
            elif any(before.asked < death < again.asked for death in deaths):
                died += 1
            elif ended_on_purpose and not before.heard:
                hung_up += 1
            else:
                repaid += 1
    return Bill(repaid=repaid, died=died, hung_up=hung_up)
