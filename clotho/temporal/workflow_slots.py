"""The workflow tasks that a process takes: those of workflows that it has, and others while it keeps up."""

import asyncio
import threading

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


class Permit(SlotPermit):
    """A slot; `own` if it is for a task of a workflow that the process has, and not of any in the shared queue."""

    def __init__(self, own: bool) -> None:
        self.own = own
        self.waits = True
        """Whether no task has come yet."""


class WorkflowSlots(CustomSlotSupplier):
    """At most `most` workflow tasks of a queue at once, those that are asked for included."""

    def __init__(self, most: int, load: ProcessLoad) -> None:
        self._most = most
        self._load = load
        self._lock = threading.Lock()  # the SDK gives slots back in threads of its own
        self._reserved = 0
        self._loop = asyncio.get_running_loop()
        # one after another: what a workflow costs shows when it has begun
        self._asks_others = asyncio.Semaphore(1)

    async def reserve_slot(self, ctx: SlotReserveContext) -> SlotPermit:
        if ctx.is_sticky:
            return await self._reserve(own=True)
        await self._asks_others.acquire()
        try:
            return await self._reserve(own=False)
        except asyncio.CancelledError:
            self._asks_others.release()
            raise

    async def _reserve(self, own: bool) -> Permit:
        while not self._takes(own):  # noqa: ASYNC110  # threads that release slots can set no event
            await asyncio.sleep(LOOK_SECONDS)
        with self._lock:
            self._reserved += 1
        return Permit(own)

    def _takes(self, own: bool) -> bool:
        return self._reserved < self._most and (own or self._load.takes_workflows)

    def try_reserve_slot(self, ctx: SlotReserveContext) -> SlotPermit | None:
        return None

    def mark_slot_used(self, ctx: SlotMarkUsedContext) -> None:
        self._load.begin_task()
        self._end_wait(ctx.permit)

    def release_slot(self, ctx: SlotReleaseContext) -> None:
        self._end_wait(ctx.permit)
        with self._lock:
            self._reserved -= 1
        if ctx.slot_info is not None:
            self._load.end_task()

    def _end_wait(self, permit: SlotPermit) -> None:
        assert isinstance(permit, Permit)
        if permit.waits and not permit.own:
            self._loop.call_soon_threadsafe(self._asks_others.release)
        permit.waits = False


def workflow_tuner(slots: WorkflowSlots, local_steps: int) -> WorkerTuner:
    """The slots of a worker of workflows, which makes up to `local_steps` local activities at once."""
    none = FixedSizeSlotSupplier(1)
    return WorkerTuner.create_composite(
        workflow_supplier=slots,
        activity_supplier=none,
        local_activity_supplier=FixedSizeSlotSupplier(local_steps),
        nexus_supplier=none,
    )
