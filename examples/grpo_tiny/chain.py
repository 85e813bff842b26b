"""The processes that train, beside a cluster's workers: the model's server, the API, the trainer, the adapter."""

import asyncio
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from types import MappingProxyType

from temporalio.client import WorkflowFailureError
from temporalio.service import RPCError

from clotho.embedded.model import EmbeddedModelServer
from clotho.embedded.model.bundled import BUNDLED
from clotho.errors import Unavailable
from clotho.frozen_model import FrozenModel
from clotho.processes.child import ChildProcess
from clotho.processes.ports import free_port
from clotho.runs.ledger import Ledger
from examples.grpo_tiny import weights
from examples.grpo_tiny.steps import Steps
from tests.cluster import Cluster

ENVIRONMENT = "file_tasks"
MAX_TOKENS = 1_025
"""One more than the policy's context, which is as long as a row may be."""
NO_WORKERS: Mapping[str, ChildProcess] = MappingProxyType({})


class Training(FrozenModel):
    """The settings of a training run."""

    run: str = "grpo-tiny"
    steps: int = 22
    rate: float = 3e-4
    group_size: int = 8
    batch_size: int = 32
    """Rows of a batch, of which each is a rollout."""
    open_groups: int = 8
    """Groups that are open at once, until they are delivered."""
    max_lag: int = 4
    """Steps that a group's weights may be behind when it is delivered."""
    damage: float = 0.25
    """Noise on the matrices at the start, in deviations of their entries."""
    seed: int = 0
    """Seed of the damage."""


class Chain:
    """One training run, in its own folder of `cluster`. Every part may be killed and started again."""

    def __init__(self, cluster: Cluster, training: Training, workers: Mapping[str, ChildProcess]) -> None:
        self.cluster = cluster
        self.training = training
        self._folder = cluster.folder / training.run
        self.weights = self._folder / "weights"
        self.queue = self._folder / "queue.sqlite"
        self._kept = self._folder / "steps"
        self.steps = Steps(self._kept)
        self.model = EmbeddedModelServer(self._log("model"), port=free_port(), weights=self.weights)
        self._api_port = free_port()
        self._own = {
            "API": ChildProcess(self._api(), self._log("api")),
            "trainer": ChildProcess(self._trainer(), self._log("trainer")),
            "adapter": ChildProcess(self._adapter(), self._log("adapter")),
        }
        self.parts: Mapping[str, EmbeddedModelServer | ChildProcess] = {
            **workers,
            "model server": self.model,
            **self._own,
        }

    async def start(self) -> None:
        """Whatever isn't there before training."""
        for process in self._own.values():
            await process.start()

    async def stop(self) -> None:
        """Stop drawing, delivering and training."""
        for process in self._own.values():
            await process.kill()

    async def cancel_open_groups(self) -> None:
        """Cancel groups that won't be delivered, so that they don't compete with the next run."""
        ledger = Ledger(self.cluster.open_journal(), self.training.run)
        claims = await ledger.load()
        finished = await ledger.finished(claims)
        await asyncio.gather(*(self._cancel(claim.group) for claim in claims if claim not in finished))

    async def strike(self, part: str) -> None:
        """SIGKILL, and a new start."""
        await self.parts[part].kill()
        await self.parts[part].start()

    async def has_trained(self) -> bool:
        """Raises Unavailable if a part ended by itself before the trainer has done its steps."""
        trainer = self._own["trainer"]
        if not trainer.running and await trainer.wait() == 0:
            return True
        for name, part in self.parts.items():
            process = part.process if isinstance(part, EmbeddedModelServer) else part
            if not process.running:
                raise Unavailable(f"the {name} ended: {process.last_words} [{process.log}]")
        return False

    async def _cancel(self, group: str) -> None:
        handle = self.cluster.client.get_workflow_handle(group)
        # It may never have started, or have just ended.
        with suppress(RPCError, WorkflowFailureError):
            await handle.cancel()
            await handle.result()

    def _log(self, part: str) -> Path:
        return self._folder / "logs" / f"{part}.log"

    @property
    def _api_url(self) -> str:
        return f"http://127.0.0.1:{self._api_port}"

    def _api(self) -> list[str]:
        program = Path(sys.executable).with_name("clotho")
        return [str(program), "atropos-api", "--port", str(self._api_port), "--queue", str(self.queue)]

    def _trainer(self) -> list[str]:
        options = {
            "api": self._api_url,
            "server": self.model.url,
            "weights": self.weights,
            "kept": self._kept,
            "steps": self.training.steps,
            "rate": self.training.rate,
            "batch-size": self.training.batch_size,
            "max-token-len": MAX_TOKENS,
        }
        # The machine is the others' too: threads of matrix products would only wait for each other.
        program = ["env", "OPENBLAS_NUM_THREADS=1", sys.executable, "-m", "examples.grpo_tiny.train"]
        return [*program, *(f"--{name}={value}" for name, value in options.items())]

    def _adapter(self) -> list[str]:
        options = {
            "env.run": self.training.run,
            "env.store": self.cluster.store_location,
            "env.temporal": self.cluster.address,
            "env.environment": ENVIRONMENT,
            "env.tokenizer_name": BUNDLED,
            "env.rollout_server_url": self._api_url,
            "env.group_size": self.training.group_size,
            "env.max_open_groups": self.training.open_groups,
            "env.max_batches_offpolicy": 2,
            "env.max_weight_lag": self.training.max_lag,
            "env.total_steps": 1_000_000,
            "env.temperature": 1.0,
            "env.use_wandb": False,
            # Nothing is learned from such groups, but without them the mean score would be of the others only.
            "env.ensure_scores_are_not_same": False,
            "openai.base_url": f"{self.model.url}/v1",
            "openai.model_name": self.model.model,
            "openai.api_key": "none",
        }
        namespace = f"CLOTHO_TEMPORAL__NAMESPACE={self.cluster.client.namespace}"
        program = ["env", namespace, sys.executable, "atropos_adapter.py", "serve"]
        return [*program, *(f"--{name}={value}" for name, value in options.items())]


@asynccontextmanager
async def chain_on(
    cluster: Cluster, training: Training, workers: Mapping[str, ChildProcess] = NO_WORKERS
) -> AsyncIterator[Chain]:
    """Damaged weights and the server of them; training is not started.

    `workers` are those of the cluster's that may be killed as well.
    """
    chain = Chain(cluster, training, workers)
    await asyncio.to_thread(
        weights.write_damaged, BUNDLED, chain.weights, damage=training.damage, seed=training.seed
    )
    async with chain.model:
        yield chain
