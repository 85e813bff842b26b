"""A verifier that hangs, or meets what only its own code has done, as its item says."""

import errno
import os
import subprocess
import time
from collections import deque
from itertools import repeat
from pathlib import Path

from clotho.environment import AgentResult, Environment, EnvironmentConfig, Item, ToolContext


class HangingConfig(EnvironmentConfig):
    enabled_toolsets: tuple[str, ...] | None = ("terminal",)
    begun: str
    """The file, on the worker's host, that gets a line with the process of each call."""


class Hanging(Environment):
    config_class = HangingConfig
    config: HangingConfig

    async def get_next_item(self) -> Item:
        return {}

    def format_prompt(self, item: Item) -> str:
        return "task"

    def compute_reward(self, item: Item, result: AgentResult, ctx: ToolContext) -> float:
        with Path(self.config.begun).open("a") as begun:
            begun.write(f"{os.getpid()}\n")
        match item["does"]:
            case "raises EIO":
                raise OSError(errno.EIO, "Input/output error")
            case "runs out of memory":
                raise MemoryError
            case "hangs":
                time.sleep(3600)
            case "loops":
                while True:
                    pass
            case "loops in C":  # where Python runs no signal handler
                deque(repeat(None), maxlen=0)
            case "runs a program":
                subprocess.run(["sleep", "3600"])
        return 1.0
