"""Items of an environment's dataset that the run hasn't drawn yet."""

from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

from clotho.environment.environment import json_item
from clotho.identifiers.ids import item_name
from clotho.rollouts.item import Item
from clotho.runs.ledger import Claim


class ClaimedItem(dict[str, Any]):
    """A dataset item, with its claim, as Atropos gets it."""

    def __init__(self, claim: Claim) -> None:
        super().__init__(claim.item)
        self.claim = claim


class Items:
    """Draws items, and skips those that the run has drawn before.

    Each was drawn as often as `drawn` says. So a dataset in the same order goes on where it stopped, a shuffled
    one hands out the rest, and one that never repeats itself loses nothing.
    """

    def __init__(self, draw: Callable[[], Awaitable[Any]], drawn: Counter[str]) -> None:
        self._draw = draw
        self._drawn_before = Counter(drawn)

    async def next(self) -> Item | None:
        """Draw the next item. Raises EnvironmentFailed for one that isn't a JSON object."""
        while (drawn := await self._draw()) is not None:
            item = json_item(drawn)
            name = item_name(item)
            if not self._drawn_before[name]:
                return item
            self._drawn_before[name] -= 1
        return None
