"""Dataset items of a run: enumerated at once, or taken one at a time by the adapter."""

from pydantic import JsonValue

from clotho.frozen_model import FrozenModel

Item = dict[str, JsonValue]


class ItemChunk(FrozenModel):
    """Consecutive dataset items of a run."""

    items: tuple[Item, ...]


class AdapterItem(FrozenModel):
    """An item that the adapter took from the dataset, and the group that rolls it out."""

    item: Item
    group: str
    step: int
    """The trainer's step when it was taken."""
    at: float | None = None
    """When it was taken, in seconds since the epoch; None where a trainer orders groups by name."""


class Delivery(FrozenModel):
    """The delivery of an adapter's group: sent to the trainer's API, or with a `reason`, one word, never sent."""

    reason: str | None = None
    detail: str = ""
