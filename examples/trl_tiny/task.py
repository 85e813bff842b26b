"""The task of the training: its items, and the run that its groups are ordered from."""

import asyncio

from clotho_client.orders import Endpoint, Inference, Item, Rendering, RunOrder

from environments.file_tasks import FileTasks, FileTasksConfig

TEMPERATURE = 1.0
CONFIG = FileTasksConfig(kinds=("create",), max_agent_turns=1, max_token_length=64)
"""One command: what it takes to write the file, and to learn it in few steps."""


def draw_items(number: int, seed: int) -> list[Item]:
    async def draw() -> list[Item]:
        environment = FileTasks(CONFIG.model_copy(update={"seed": seed}))
        await environment.setup()
        return [await environment.get_next_item() for _ in range(number)]

    return asyncio.run(draw())


def run_order(server: str, model: str, group_size: int, seed: int) -> RunOrder:
    """Groups sampled from `model` of the embedded server at the URL `server`."""
    return RunOrder(
        environment="file_tasks",
        environment_config=CONFIG.model_dump(mode="json", exclude_unset=True),
        model=model,
        endpoint=Endpoint(base_url=f"{server}/v1", inference=Inference.TOKENS),
        rendering=Rendering(tool_call_parser="hermes"),
        temperature=TEMPERATURE,
        group_size=group_size,
        seed=seed,
        settings={"checkpoints": "off"},
    )
