"""Clotho's own metrics: counts of what this process has done, kept by Temporal's SDK."""

import asyncio
import logging
import time
from collections import Counter

from temporalio import activity
from temporalio.common import MetricMeter

from clotho.errors import ClothoError
from clotho.models.backend import SampledTurn
from clotho.rollouts.call import CallEntry
from clotho.rollouts.lease import LeaseEntry
from clotho.rollouts.rollout import RolloutSummary
from clotho.sandbox.backend import SandboxBackend

LONG = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0)
SHORT = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0)
BUCKETS = {
    "clotho_turn": LONG,
    "clotho_call": LONG,
    "clotho_delivery": LONG,
    "clotho_store_request": SHORT,
    "temporal_activity_schedule_to_start_latency": LONG,
}
"""Upper bounds of histograms' buckets, in seconds."""
UNKNOWN = "unknown"
"""Stands for the names of tools that a model invents."""
PERIOD_SECONDS = 10.0
log = logging.getLogger("clotho")


class Metrics:
    """One per process. Each count takes a microsecond; labels have few values, and no model chooses one."""

    def __init__(self, meter: MetricMeter = MetricMeter.noop) -> None:
        self._turns = meter.create_counter("clotho_turns", "Turns that model servers answered.")
        self._turn = meter.create_histogram_float("clotho_turn", "Time of a turn's model call.", "seconds")
        self._tokens = meter.create_counter("clotho_tokens", "Tokens of turns, as model servers count them.")
        self._repaid = meter.create_counter(
            "clotho_repaid_turns", "Answers of model servers that were in the journal by then."
        )
        self._partitioned = meter.create_counter(
            "clotho_repaid_by_partition",
            "Turns asked for in the stead of a process that was taken for gone, and answered them.",
        )
        self._calls = meter.create_counter("clotho_calls", "Tool calls that were made.")
        self._call = meter.create_histogram_float("clotho_call", "Time of a tool call.", "seconds")
        self._rollouts = meter.create_counter("clotho_rollouts", "Rollouts that ended with a score.")
        self._sandboxes = meter.create_gauge("clotho_sandboxes", "Sandboxes of this host.")
        self._made = meter.create_counter(
            "clotho_sandboxes_made", "Sandboxes made, for new and for lost ones."
        )
        self._store = meter.create_histogram_float(
            "clotho_store_request", "Time of a store's answer.", "seconds"
        )
        # there from the start: rate() misses the first event of a counter that appears with it
        self._repaid.add(0)
        self._partitioned.add(0)

    def count_turn(self, environment: str, turn: SampledTurn | None) -> None:
        """Count a turn; None: it didn't fit into the model's context."""
        if turn is None:
            self._turns.add(1, {"environment": environment, "outcome": "context_overflow"})
            return
        outcome = "truncated" if turn.finish_reason == "length" else "sampled"
        self._turns.add(1, {"environment": environment, "outcome": outcome})
        self._turn.record(turn.seconds, {"environment": environment})
        usage = turn.usage
        for kind, count in (
            ("prompt", usage.prompt_tokens),
            ("cached_prompt", usage.cached_prompt_tokens),
            ("sampled", usage.completion_tokens),
        ):
            self._tokens.add(count, {"environment": environment, "kind": kind})

    def count_repaid_turn(self) -> None:
        self._repaid.add(1)

    def count_repaid_by_partition(self) -> None:
        self._partitioned.add(1)

    def count_call(self, call: CallEntry, *, known: bool) -> None:
        """Count a tool call; `known`: the tool is one that the rollout was offered."""
        # each value of a label is a time series that Prometheus keeps
        tool = call.tool if known else UNKNOWN
        self._calls.add(1, {"tool": tool, "outcome": "ok" if call.error is None else "error"})
        self._call.record(call.seconds, {"tool": tool})

    def count_rollout(self, rollout: RolloutSummary) -> None:
        self._rollouts.add(1, {"outcome": str(rollout.ending.outcome)})

    def count_sandbox(self, lease: LeaseEntry) -> None:
        """Count a sandbox that was made for a lease."""
        self._made.add(1, {"fidelity": str(lease.fidelity or "new")})

    def show_sandboxes(self, states: Counter[str]) -> None:
        """Show the number of this host's sandboxes in each state."""
        for state, count in states.items():
            self._sandboxes.set(count, {"state": state})

    def count_request(self, request: str, seconds: float) -> None:
        """Count a request to the store."""
        self._store.record(seconds, {"request": request})


def count_failed_attempt(reason: str, *, retried: bool) -> None:
    """Count a failed attempt of the running activity, whose kind and queue are further labels."""
    counter = activity.metric_meter().create_counter(
        "clotho_failed_attempts", "Attempts of activities that failed, by the kind of error."
    )
    counter.add(1, {"reason": reason, "retried": str(retried).lower()})


class SandboxCounts:
    """Shows the number of a host's sandboxes in each state, until it is cancelled.

    While a backend doesn't answer, the last numbers stay.
    """

    def __init__(self, backend: SandboxBackend, metrics: Metrics) -> None:
        self._backend = backend
        self._metrics = metrics
        self.held: int | None = None
        """Their number at the last look; None before the first one."""

    async def run(self) -> None:
        while True:
            try:
                # both states each time: a gauge that isn't set keeps its last number
                now, states = time.time(), Counter(held=0, expired=0)
                for lease in await self._backend.leases():
                    states["held" if lease.expires > now else "expired"] += 1
                self._metrics.show_sandboxes(states)
                self.held = states.total()
            except ClothoError as error:
                log.info("sandboxes not counted: %s", error)
            await asyncio.sleep(PERIOD_SECONDS)
