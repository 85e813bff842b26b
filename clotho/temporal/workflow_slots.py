"""The workflow tasks that a process takes: those of workflows that it has, and others while it keeps up."""

import asyncio
import threading
from dataclasses import dataclass

from temporalio.worker import (
    CustomSlotSupplier,
    FixedSizeSlotSupplier,
    SlotMarkUsedContext,
    SlotPermit,
    SlotReleaseContext,
    SlotReserveContext,
    WorkerTuner,
)

from clotho.processes.load import ProcessLoad

LOOK_SECONDS = 0.02


@dataclass
class Permit(SlotPermit):
    """A slot for a task of a workflow that the process has, or of any in the shared queue."""

    own: bool
    asks: bool = True
    """Whether no task has come yet."""


class WorkflowSlots(CustomSlotSupplier):
    """At most `most` workflow tasks of a queue at once, those that are asked for included."""

    def __init__(self, most: int, load: ProcessLoad) -> None:
        self._most = most
        self._load = load
        self._lock = threading.Lock()  # the SDK uses slots and gives them back in threads of its own
        self._reserved = 0
        self._asks_others = False

    async def reserve_slot(self, ctx: SlotReserveContext) -> SlotPermit:
        while not self._takes(ctx.is_sticky):  # noqa: ASYNC110  # threads that release slots can set no event
            await asyncio.sleep(LOOK_SECONDS)
        with self._lock:
            self._reserved += 1
            self._asks_others = self._asks_others or not ctx.is_sticky
        return Permit(own=ctx.is_sticky)

    def _takes(self, own: bool) -> bool:
        # one after another: what a workflow costs shows when it has begun
        others = own or (self._load.takes_workflows and not self._asks_others)
        return others and self._reserved < self._most

    def try_reserve_slot(self, ctx: SlotReserveContext) -> SlotPermit | None:
        return None

    def mark_slot_used(self, ctx: SlotMarkUsedContext) -> None:
        self._load.begin_task()
        self._has_come(ctx.permit)

    def _has_come(self, permit: SlotPermit) -> None:
        assert isinstance(permit, Permit)
        with self._lock:
            if permit.asks and not permit.own:
                self._asks_others = False
            permit.asks = False

    def release_slot(self, ctx: SlotReleaseContext) -> None:
        self._has_come(ctx.permit)
        with self._lock:
            self._reserved -= 1
        if ctx.slot_info is not None:
            self._load.end_task()


def workflow_tuner(slots: WorkflowSlots, local_steps: int) -> WorkerTuner:
    """The slots of a worker of workflows, which makes up to `local_steps` local activities at once."""
    none = FixedSizeSlotSupplier(1)
    return WorkerTuner.create_composite(
        workflow_supplier=slots,
        activity_supplier=none,
        local_activity_supplier=FixedSizeSlotSupplier(local_steps),
        nexus_supplier=none,
    )
