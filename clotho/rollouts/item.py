"""Dataset items of a run: enumerated at once, or drawn one at a time."""

from pydantic import JsonValue

from clotho.frozen_model import FrozenModel

Item = dict[str, JsonValue]


class ItemChunk(FrozenModel):
    """Consecutive dataset items of a run."""

    items: tuple[Item, ...]


class DrawnItem(FrozenModel):
    """An item that was drawn by itself, and the group that rolls it out."""

    item: Item
    group: str
    step: int
    """The trainer's, when it was drawn."""


class Delivery(FrozenModel):
    """The end of a drawn group's way: the trainer's API has it, or it is never sent.

    `reason` is then one word for why.
    """

    reason: str | None = None
    detail: str = ""
