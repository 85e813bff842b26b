"""The adapter's metrics: for wandb those of rollouts, for Prometheus those of delivered groups."""

import time
from collections import Counter
from collections.abc import Mapping, Sequence

from temporalio.common import MetricMeter

from clotho.escaping import truncate_middle
from clotho.rollouts.call import ToolError
from clotho.rollouts.group import GroupEntry
from clotho.training.siblings import Sibling

SHOWN_ERRORS = 20
ERROR_LIMIT = 200

Metrics = dict[str, float | int | str]


class Tally:
    """Counts of the groups since the last log."""

    def __init__(self) -> None:
        self._groups: list[tuple[GroupEntry, tuple[Sibling, ...]]] = []
        self._dropped: Counter[str] = Counter()

    def add(self, entry: GroupEntry, siblings: Sequence[Sibling]) -> None:
        self._groups.append((entry, tuple(siblings)))

    def add_dropped(self, reason: str) -> None:
        self._dropped[reason] += 1

    def flush(self) -> Metrics:
        """The metrics, once: the next call counts from zero."""
        siblings = [sibling for _, group in self._groups for sibling in group]
        repairs = sum(len(entry.repairs) for entry, _ in self._groups)
        dropped = {f"train/dropped/{reason}": count for reason, count in self._dropped.items()}
        self._groups, self._dropped = [], Counter()
        return {**dropped, **(_of_rollouts(siblings, repairs) if siblings else {})}


def _of_rollouts(siblings: Sequence[Sibling], repairs: int) -> Metrics:
    summaries = [sibling.summary for sibling in siblings]
    errors = [error for sibling in siblings for error in sibling.tool_errors]
    outcomes = Counter(str(summary.ending.outcome) for summary in summaries)
    count = len(summaries)
    metrics: Metrics = {
        "train/rollouts_scored": count,
        "train/reward_mean": sum(summary.score for summary in summaries) / count,
        "train/turns_mean": sum(summary.turns for summary in summaries) / count,
        "train/sampled_tokens": sum(summary.sampled_tokens for summary in summaries),
        "train/prompt_tokens": sum(summary.prompt_tokens for summary in summaries),
        "train/tool_calls": sum(summary.tool_calls for summary in summaries),
        "train/tool_errors_count": sum(summary.tool_errors for summary in summaries),
        "train/repairs": repairs,
        "train/resumed_turns": sum(summary.resumed_turns for summary in summaries),
        "train/sandbox_losses": sum(len(summary.losses) for summary in summaries),
    }
    disturbed = Counter(kind for sibling in siblings for kind in sibling.disturbances)
    metrics |= {f"train/disturbed/{kind}": number for kind, number in disturbed.items()}
    metrics |= {f"train/outcome/{outcome}": number for outcome, number in outcomes.items()}
    if errors:
        metrics["train/tool_error_details"] = "\n".join(map(_line, errors[:SHOWN_ERRORS]))
    return metrics


def _line(error: ToolError) -> str:
    arguments, text = truncate_middle(error.arguments, ERROR_LIMIT), truncate_middle(error.error, ERROR_LIMIT)
    return f"turn {error.turn} {error.tool_name}({arguments}): {text}"


class DeliveryMetrics:
    """Metrics of one adapter. Counts begin with the process; ages of groups come from the store, and go on."""

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
        # named with its unit: the SDK adds that to histograms alone
        self._oldest = meter.create_gauge_float(
            "clotho_oldest_undelivered_group_seconds", "Time since the oldest undelivered group was drawn."
        )
        self._queue = meter.create_gauge("clotho_trainer_queue_groups", "Groups in the queue of the API.")
        # shown as 0 from the start: a counter that appears with its first group has no increase to show
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
