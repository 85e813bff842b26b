"""All processes of the loop: Temporal, the model, a worker, the durable API, the adapter and the trainer."""

import asyncio
import random
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from clotho.config import cache_folder, program_on_path
from clotho.embedded.model import EmbeddedModelServer
from clotho.embedded.temporal_binary import temporal_binary
from clotho.embedded.temporal_server import TemporalServer
from clotho.processes.child import ChildProcess
from clotho.processes.ports import free_port
from clotho.search_attributes import SEARCH_ATTRIBUTES

GROUP_SIZE = 8
BATCH_SIZE = 32
MAX_TOKENS = 512
MAX_LAG = 4

Announce = Callable[[str], None]


@dataclass(frozen=True)
class Chain:
    model: EmbeddedModelServer
    worker: ChildProcess
    api: ChildProcess
    adapter: ChildProcess
    trainer: ChildProcess

    async def kill_one(self, choice: random.Random) -> str:
        """SIGKILL somebody and start them again. Returns who it was."""
        name = choice.choice(("model", "worker", "api", "adapter", "trainer"))
        victim: EmbeddedModelServer | ChildProcess = getattr(self, name)
        if victim is self.trainer and not self.trainer.running:
            return "nobody"
        await victim.kill()
        await victim.start()
        return name


@asynccontextmanager
async def running(folder: Path, steps: int, announce: Announce) -> AsyncIterator[Chain]:
    """Everything started, in `folder`; ended by pid, the last first."""
    logs, weights, store = folder / "logs", folder / "weights", str(folder / "store")
    binary = await temporal_binary(
        cache_folder() / "bin",
        on_path=program_on_path("temporal"),
        go=program_on_path("go"),
        announce=announce,
    )
    async with AsyncExitStack() as stack:
        temporal = TemporalServer(
            binary,
            logs / "temporal.log",
            ui_port=None,
            db=folder / "temporal.db",
            search_attributes=SEARCH_ATTRIBUTES,
        )
        await stack.enter_async_context(temporal)
        model = await stack.enter_async_context(EmbeddedModelServer(logs / "model.log", weights=weights))
        port = free_port()
        url = f"http://127.0.0.1:{port}"
        clotho = str(Path(sys.executable).with_name("clotho"))
        queue = str(folder / "queue.sqlite")
        chain = Chain(
            model=model,
            worker=ChildProcess(
                [sys.executable, "worker.py", "--store", store, "--temporal", temporal.address],
                logs / "worker.log",
            ),
            api=ChildProcess(
                [clotho, "atropos-api", "--port", str(port), "--queue", queue], logs / "api.log"
            ),
            adapter=ChildProcess(
                adapter(store, temporal.address, model.url, url, weights), logs / "adapter.log"
            ),
            trainer=ChildProcess(trainer(folder, model.url, url, steps), logs / "trainer.log"),
        )
        for process in (chain.worker, chain.api, chain.trainer, chain.adapter):
            await process.start()
            stack.push_async_callback(process.kill)
        yield chain


def adapter(store: str, temporal: str, model: str, api: str, weights: Path) -> list[str]:
    flags = {
        "env.run": "grpo-tiny",
        "env.store": store,
        "env.temporal": temporal,
        "env.environment": "file_tasks",
        "env.tokenizer_name": str(weights),
        "env.group_size": GROUP_SIZE,
        "env.rollout_server_url": api,
        "env.max_open_groups": 8,
        "env.max_weight_lag": MAX_LAG,
        "env.total_steps": 1_000_000,
        "env.temperature": 1.0,
        "env.use_wandb": False,
        # Nothing is learned from such groups, but without them the mean score would be of the others only.
        "env.ensure_scores_are_not_same": False,
        "openai.base_url": f"{model}/v1",
        "openai.model_name": "clotho-tiny",
        "openai.api_key": "none",
    }
    options = [f"--{name}={value}" for name, value in flags.items()]
    return [sys.executable, "atropos_adapter.py", "serve", *options]


def trainer(folder: Path, model: str, api: str, steps: int) -> list[str]:
    flags = {
        "api": api,
        "server": model,
        "weights": folder / "weights",
        "metrics": folder / "metrics.jsonl",
        "steps": steps,
        "batch-size": BATCH_SIZE,
        "max-token-len": MAX_TOKENS,
    }
    options = [f"--{name}={value}" for name, value in flags.items()]
    # The machine is shared with all the others: threads of the matrix products would only wait for each other.
    return ["env", "OPENBLAS_NUM_THREADS=1", sys.executable, "-m", "examples.grpo_tiny.train", *options]


async def until_trained(
    chain: Chain, kills: int, seconds_between: float, seed: int, announce: Announce
) -> None:
    """Wait for the trainer to end, and kill somebody now and then meanwhile. Raises RuntimeError if it fails."""
    choice = random.Random(seed)
    while chain.trainer.running:
        try:
            await asyncio.wait_for(chain.trainer.wait(), seconds_between * choice.uniform(0.5, 1.5))
        except TimeoutError:
            if kills > 0:
                kills -= 1
                announce(f"killed and started again: {await chain.kill_one(choice)}")
    if await chain.trainer.wait() != 0:
        raise RuntimeError(f"the trainer failed: {chain.trainer.last_words}")
