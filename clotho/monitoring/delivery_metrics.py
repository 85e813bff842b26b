"""Metrics of the Atropos adapter: the groups that it brings to a trainer, and those that it has yet to bring."""

import time
from collections.abc import Mapping

from temporalio.common import MetricMeter


class DeliveryMetrics:
    """One per adapter. Counts begin with the process; the age of a group is in the store, and goes on."""

    def __init__(self, meter: MetricMeter = MetricMeter.noop) -> None:
        self._sent = meter.create_counter(
            "clotho_groups_sent", "Groups that the trainer's API was asked to take."
        )
        self._acknowledged = meter.create_counter("clotho_groups_acknowledged", "Groups that the API took.")
        self._dropped = meter.create_counter("clotho_groups_dropped", "Groups that are never delivered.")
        self._rows = meter.create_counter("clotho_rows_delivered", "Rows of acknowledged groups.")
        self._delivery = meter.create_histogram_float(
            "clotho_delivery",
            "From a group that is ready to be sent to the API's acknowledgement.",
            "seconds",
        )
        self._undelivered = meter.create_gauge("clotho_undelivered_groups", "Groups drawn and not delivered.")
        # Named with its unit: the SDK adds that to histograms alone.
        self._oldest = meter.create_gauge_float(
            "clotho_oldest_undelivered_group_seconds", "Time since the oldest undelivered group was drawn."
        )
        self._queue = meter.create_gauge("clotho_trainer_queue_groups", "Groups in the queue of the API.")
        self._sent.add(0, {"again": "false"})
        self._rows.add(0)

    def count_sent(self, *, again: bool) -> None:
        """Count a group that is about to be sent; `again`: an earlier process may have sent it."""
        self._sent.add(1, {"again": str(again).lower()})

    def count_acknowledged(self, rows: int, seconds: float, *, duplicate: bool) -> None:
        """Count a group that the API took; `duplicate`: it had it before."""
        self._acknowledged.add(1, {"duplicate": str(duplicate).lower()})
        self._rows.add(rows)
        self._delivery.record(seconds)

    def count_dropped(self, reason: str) -> None:
        self._dropped.add(1, {"reason": reason})

    def show_undelivered(self, count: int, oldest: float | None) -> None:
        """Show the undelivered groups; `oldest` is when the first was drawn, in seconds since the epoch."""
        self._undelivered.set(count)
        self._oldest.set(0.0 if oldest is None else max(0.0, time.time() - oldest))

    def show_queue(self, status: Mapping[str, float]) -> None:
        """Show what the API's status says of its queue: of what counts for this environment, and its own part."""
        self._queue.set(int(status["queue_size"]), {"of": "all"})
        self._queue.set(int(status.get("self_queue_size", 0)), {"of": "own"})
