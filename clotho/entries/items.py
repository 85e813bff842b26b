"""What the journal holds of a run's items: enumerated at once, or drawn one at a time."""

from pydantic import JsonValue

from clotho.entries.run import RunManifest
from clotho.records.base import Record
from clotho.records.group import GroupRequest, RepairBounds
from clotho.records.stations import Stations

Item = dict[str, JsonValue]


class ItemChunk(Record):
    """Consecutive dataset items of a run."""

    items: tuple[Item, ...]


class DrawnItem(Record):
    """An item that was drawn by itself, and the group that rolls it out."""

    item: Item
    group: str
    step: int
    """The trainer's, when it was drawn."""


class DrawnOrder(Record):
    """How a run's groups are rolled out whose items are drawn one at a time: the last entry counts."""

    stations: Stations = Stations()
    repairs: RepairBounds = RepairBounds()

    def group(self, manifest: RunManifest, group: str, item: int) -> GroupRequest:
        """What rolls the run's item number `item` out."""
        return GroupRequest(
            run=manifest.run,
            group=group,
            environment=manifest.environment,
            item=item,
            size=manifest.group_size,
            limits=manifest.limits,
            stations=self.stations,
            repairs=self.repairs,
        )


class Delivery(Record):
    """The end of a drawn group's way: the trainer's API has it, or it is never sent.

    `reason` is then one word for why.
    """

    reason: str | None = None
    detail: str = ""
