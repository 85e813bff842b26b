"""The chain of `clotho demo --atropos`: the durable Atropos API, the adapter, and a trainer that checks batches."""

import asyncio
import sys
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

from clotho import application
from clotho.config import Settings
from clotho.embedded.model.bundled import BUNDLED
from clotho.embedded.services import Services
from clotho.errors import ClothoError, Unavailable
from clotho.processes.child import ChildProcess
from clotho.processes.ports import free_port

PROGRAM = Path(sys.executable).with_name("clotho")
ADAPTER, TRAINER = "atropos_adapter", "examples.trainer.__main__"
GROUPS_PER_BATCH = 2
POLL = 0.1


class BatchRefused(ClothoError):
    """The trainer found a fault in what it was given."""


@dataclass(frozen=True)
class TrainingChain:
    """A run of `environment` through Atropos, from sampled tokens to `batches` checked ones."""

    services: Services
    settings: Settings
    environment: str
    group_size: int
    batches: int
    say: Callable[[str], None]

    async def run(self, name: str) -> None:
        """Run the chain. Raises BatchRefused for a faulty batch, Unavailable if a part of the chain ends."""
        port = free_port()
        url = f"http://127.0.0.1:{port}"
        queue = self.settings.folder / f"{name}.sqlite"
        api = self._child(
            "atropos-api", [str(PROGRAM), "atropos-api", "--port", str(port), "--queue", str(queue)]
        )
        rows = GROUPS_PER_BATCH * self.group_size
        batches = ("--batch-size", str(rows), "--batches", str(self.batches))
        trainer = self._child("trainer", application.command(TRAINER, "--api", url, *batches))
        adapter = self._child("adapter", application.command(ADAPTER, "serve", *self._of_adapter(name, url)))
        async with AsyncExitStack() as stack:
            for process in (api, trainer, adapter):
                stack.push_async_callback(process.stop)
                await process.start()
            self.say(f"Atropos API      {url}, queue in {queue}")
            status = await self._follow(trainer, {"the Atropos API": api, "the adapter": adapter})
        if status != 0:
            raise BatchRefused(f"the trainer found faults: {trainer.log}")

    async def _follow(self, trainer: ChildProcess, others: dict[str, ChildProcess]) -> int:
        """Say what the trainer says until it ends; returns its exit status."""
        said = 0
        while True:
            # before its output is read, so that its last lines are said, too
            ended = not trainer.running
            # the last line may be half written
            *lines, _ = trainer.output.split("\n")
            for line in lines[said:]:
                self.say(line)
            said = len(lines)
            if ended:
                return await trainer.wait()
            for name, process in others.items():
                if not process.running:
                    raise Unavailable(f"{name} ended: {process.last_words} [{process.log}]")
            await asyncio.sleep(POLL)

    def _child(self, name: str, command: list[str]) -> ChildProcess:
        return ChildProcess(command, self.services.logs / f"{name}.log")

    def _of_adapter(self, name: str, url: str) -> list[str]:
        of_env = {
            "run": name,
            "store": self.settings.store,
            "temporal": self.services.temporal.address,
            "environment": self.environment,
            "tokenizer_name": BUNDLED,
            "group_size": self.group_size,
            "rollout_server_url": url,
            "use_wandb": False,
        }
        of_server = {"base_url": self.services.model_url, "model_name": self.services.model.model}
        return [
            *(f"--env.{field}={value}" for field, value in of_env.items()),
            *(f"--openai.{field}={value}" for field, value in of_server.items()),
        ]
