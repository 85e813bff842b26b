"""What a provider was asked to answer more than once."""

from collections.abc import Mapping, Sequence
from itertools import pairwise

from clotho.records import Record
from clotho.testing.provider import Call


class Bill(Record):
    """Calls to the model that were answered more than once."""

    repaid: int = 0
    died: int = 0
    """Answered again since the process that had asked was killed before it could write the answer."""


def bill(calls: Sequence[Call], deaths: Sequence[float]) -> Bill:
    """Every answer to a key beyond its first is repaid, unless whoever had asked for the one before was killed
    since, and its entry wasn't written when the next was asked for.
    """
    by_key: Mapping[str, list[Call]] = {call.key: [] for call in calls}
    for call in calls:
        if call.answered:
            by_key[call.key].append(call)
    repaid = died = 0
    for answered in by_key.values():
        for before, again in pairwise(answered):
            if not again.journalled and any(before.asked < death < again.asked for death in deaths):
                died += 1
            else:
                repaid += 1
    return Bill(repaid=repaid, died=died)
