"""Inspect AI at the loop: python inspect_loop.py MODEL_URL ROLLOUTS.

Each line of its input has it run them once.
"""

import asyncio
import contextlib
import sys
import tempfile

from inspect_ai import Task, eval_async
from inspect_ai.dataset import Sample
from inspect_ai.model import get_model
from inspect_ai.solver import generate, use_tools
from inspect_ai.tool import Tool, tool


@tool  # type: ignore[untyped-decorator]
def todo() -> Tool:
    async def execute() -> str:
        """Read the list."""
        return "[]"

    return execute


async def main(url: str, rollouts: int) -> None:
    model = get_model("openai-api/scripted/scripted", base_url=url, api_key="none")
    samples = [Sample(input=f"task {number}") for number in range(rollouts)]
    task = Task(dataset=samples, solver=[use_tools(todo()), generate()])
    with tempfile.TemporaryDirectory(prefix="inspect-logs-") as logs:
        for _ in sys.stdin:
            with contextlib.redirect_stdout(sys.stderr):
                (log,) = await eval_async(
                    task,
                    model=model,
                    max_samples=rollouts,
                    max_connections=rollouts,
                    log_dir=logs,
                )
            assert log.status == "success", log.error
            turns = {sum(message.role == "assistant" for message in one.messages) for one in log.samples}
            print("turns", *turns, flush=True)  # noqa: T201


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))
