"""A trainer's API in a process of its own, Atropos' or Clotho's durable one, and the trainer that takes from it."""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from clotho.listeners.tokens import TokenAuth
from clotho.processes.child import ChildProcess
from clotho.processes.ports import HOST, free_port

STOCK = (sys.executable, "-m", "atroposlib.cli.run_api", "--host", HOST)
DURABLE = (str(Path(sys.executable).with_name("clotho")), "atropos-api")
PATIENCE = 90.0
POLL = 0.05

Group = dict[str, Any]


@dataclass
class TrainersEnd:
    """An API, and the trainer that takes from it."""

    url: str
    http: httpx.AsyncClient

    async def begin(self, rows: int) -> None:
        """Forget all, and register a trainer with batches of so many rows."""
        await self.http.get("/reset_data")
        registration = {
            "wandb_group": "bench",
            "wandb_project": "bench",
            "batch_size": rows,
            "max_token_len": 1 << 16,
            "checkpoint_dir": "",
            "save_checkpoint_interval": 0,
            "starting_step": 0,
            "num_steps": -1,
        }
        (await self.http.post("/register", json=registration)).raise_for_status()
        await self.batch()

    async def admit(self, name: str, group_size: int) -> int:
        """Register an environment of that name; returns its id."""
        registration = {
            "max_token_length": 1 << 16,
            "desired_name": name,
            "weight": 1.0,
            "group_size": group_size,
        }
        return int((await self.http.post("/register-env", json=registration)).json()["env_id"])

    async def batch(self) -> list[Group]:
        """The next batch, empty where none is ready."""
        found: list[Group] | None = (await self.http.get("/batch")).raise_for_status().json()["batch"]
        return found or []


@asynccontextmanager
async def trainers_end(log: Path, queue: Path | None = None) -> AsyncIterator[TrainersEnd]:
    """Atropos' own API; with `queue`, Clotho's, which keeps what it was sent in that file."""
    port = free_port()
    url = f"http://{HOST}:{port}"
    command = STOCK if queue is None else (*DURABLE, "--queue", str(queue))
    process = ChildProcess([*command, "--port", str(port)], log)
    await process.start()
    try:
        async with httpx.AsyncClient(base_url=url, timeout=60, auth=TokenAuth()) as http:
            async with asyncio.timeout(PATIENCE):
                while not await _answers(http):  # noqa: ASYNC110  # nobody tells that it listens
                    await asyncio.sleep(POLL)
            yield TrainersEnd(url, http)
    finally:
        await process.kill()


async def _answers(http: httpx.AsyncClient) -> bool:
    try:
        return (await http.get("/")).is_success
    except httpx.TransportError:
        return False
