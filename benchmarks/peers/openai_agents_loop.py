"""The OpenAI Agents SDK on Temporal at the loop: python openai_agents_loop.py MODEL_URL ROLLOUTS TEMPORAL.

Each line of its input has it run them once.
"""

import asyncio
import sys
from datetime import timedelta

from temporalio import activity, workflow
from temporalio.client import Client
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

with workflow.unsafe.imports_passed_through():
    from agents import Agent, OpenAIProvider, Runner
    from temporalio.openai_agents import ModelActivityParameters, OpenAIAgentsPlugin
    from temporalio.openai_agents.workflow import activity_as_tool

QUEUE = "openai-agents"
MOST_TURNS = 100


@activity.defn
async def todo() -> str:
    """Read the list."""
    return "[]"


@workflow.defn
class AgentLoop:
    """One agent at one task; its result is the number of the model's answers."""

    @workflow.run
    async def run(self, task: str) -> int:
        tool = activity_as_tool(todo, start_to_close_timeout=timedelta(minutes=1))
        agent = Agent(name="agent", model="scripted", tools=[tool])
        result = await Runner.run(agent, task, max_turns=MOST_TURNS)
        return len(result.raw_responses)


async def main(url: str, rollouts: int, temporal: str) -> None:
    plugin = OpenAIAgentsPlugin(
        model_params=ModelActivityParameters(start_to_close_timeout=timedelta(minutes=5)),
        model_provider=OpenAIProvider(base_url=url, api_key="none", use_responses=False),
    )
    client = await Client.connect(temporal, plugins=[plugin])
    worker = Worker(
        client,
        task_queue=QUEUE,
        workflows=[AgentLoop],
        activities=[todo],
        workflow_runner=UnsandboxedWorkflowRunner(),  # as all others here
    )
    async with worker:
        while line := await asyncio.to_thread(sys.stdin.readline):
            handles = [
                await client.start_workflow(
                    AgentLoop.run,
                    f"task {number}",
                    id=f"agent-{line.strip()}-{number}",
                    task_queue=QUEUE,
                )
                for number in range(rollouts)
            ]
            print("turns", *{await handle.result() for handle in handles}, flush=True)  # noqa: T201


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), sys.argv[3]))
