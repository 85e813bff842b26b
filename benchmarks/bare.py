"""Bare Temporal for comparison: workflows that do as many empty steps, in processes laid out alike."""

import asyncio
import sys
from datetime import timedelta

from temporalio import activity, workflow
from temporalio.client import Client
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

from clotho.temporal.conversion import DATA_CONVERTER

WORKFLOWS, MODEL, TOOLS = "bare", "bare-llm", "bare-tools"


@activity.defn
async def nothing() -> None:
    """An activity that does nothing."""


@workflow.defn
class BareRollout:
    """`turns` times one activity on each of two queues, and a few more around them, as a rollout has."""

    @workflow.run
    async def run(self, turns: int, around: int) -> None:
        for _ in range(turns):
            await self.step(MODEL)
            await self.step(TOOLS)
        for _ in range(around):
            await self.step(TOOLS)

    async def step(self, queue: str) -> None:
        await workflow.execute_activity(
            nothing,
            task_queue=queue,
            schedule_to_close_timeout=timedelta(hours=1),
            heartbeat_timeout=timedelta(seconds=30),
        )


@workflow.defn
class BareCalls:
    """Ends after `calls` Updates, each of which runs one local activity, as a harness' quick calls do."""

    def __init__(self) -> None:
        self.made = 0

    @workflow.run
    async def run(self, calls: int) -> None:
        await workflow.wait_condition(lambda: self.made == calls)

    @workflow.update
    async def call(self) -> None:
        await workflow.execute_local_activity(nothing, schedule_to_close_timeout=timedelta(hours=1))
        self.made += 1


async def serve(address: str, role: str) -> None:
    client = await Client.connect(address, data_converter=DATA_CONVERTER)
    if role == "llm":
        await Worker(client, task_queue=MODEL, activities=[nothing], max_concurrent_activities=500).run()
    tools = Worker(client, task_queue=TOOLS, activities=[nothing], max_concurrent_activities=200)
    workflows = Worker(
        client,
        task_queue=WORKFLOWS,
        workflows=[BareRollout, BareCalls],
        activities=[nothing],
        workflow_runner=UnsandboxedWorkflowRunner(),
        max_cached_workflows=2_000,
    )
    await asyncio.gather(tools.run(), workflows.run())


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1], sys.argv[2]))
