"""Items in the order of an environment's dataset, from where the run has come to."""

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from pydantic import JsonValue, TypeAdapter, ValidationError

from clotho.atropos.ledger import Claim
from clotho.entries.items import Item
from clotho.errors import EnvironmentFailed
from clotho.identifiers import item_name

JSON_OBJECT: TypeAdapter[dict[str, JsonValue]] = TypeAdapter(dict[str, JsonValue])


class ClaimedItem(dict[str, Any]):
    """A dataset item in Atropos' hands, which knows its claim."""

    def __init__(self, claim: Claim) -> None:
        super().__init__(claim.item)
        self.claim = claim


class Items:
    """Draws items, and passes over those that the run has drawn before.

    Each was drawn as often as `drawn` says. So a dataset in the same order goes on where it stopped, a shuffled
    one hands out the rest, and one that never repeats itself loses nothing.
    """

    def __init__(self, draw: Callable[[], Awaitable[Any]], drawn: Counter[str]) -> None:
        self._draw = draw
        self._drawn_before = Counter(drawn)

    async def next(self) -> Item | None:
        """Raises EnvironmentFailed for an item that isn't a JSON object."""
        while (drawn := await self._draw()) is not None:
            item = json_item(drawn)
            name = item_name(item)
            if not self._drawn_before[name]:
                return item
            self._drawn_before[name] -= 1
        return None


def json_item(drawn: Any) -> Item:
    if not isinstance(drawn, Mapping):
        raise EnvironmentFailed(f"get_next_item returned {drawn!r:.200}: an item is a JSON object")
    try:
        return JSON_OBJECT.validate_python(dict(drawn))
    except ValidationError as error:
        raise EnvironmentFailed(f"get_next_item returned an item that isn't JSON: {error}") from error
