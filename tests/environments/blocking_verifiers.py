"""Verifiers that keep their thread for longer than a local step takes; each run leaves a line in a file."""

import time

from clotho.environment import AgentResult, Environment, EnvironmentConfig, Item, ToolContext

SECONDS = 3.0


class BlockingConfig(EnvironmentConfig):
    enabled_toolsets: tuple[str, ...] | None = ("todo",)
    runs: str
    """The file, on the worker's host."""


class Blocking(Environment):
    config_class = BlockingConfig
    config: BlockingConfig

    async def get_next_item(self) -> Item:
        return {}

    def format_prompt(self, item: Item) -> str:
        return "task"

    def note_run(self) -> None:
        with open(self.config.runs, "a") as file:
            file.write("ran\n")


class Sleeps(Blocking):
    def compute_reward(self, item: Item, result: AgentResult, ctx: ToolContext) -> float:
        self.note_run()
        time.sleep(SECONDS)
        return 1.0


class NeverYields(Blocking):
    async def compute_reward(self, item: Item, result: AgentResult, ctx: ToolContext) -> float:
        self.note_run()
        deadline = time.monotonic() + SECONDS
        while time.monotonic() < deadline:
            pass
        return 1.0
