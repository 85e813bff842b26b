"""The processes around a trainer of TRL: workers, the model's server, the rollout API and the trainer itself."""

import asyncio
import shutil
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from clotho.embedded.model import EmbeddedModelServer
from clotho.embedded.model.bundled import BUNDLED
from clotho.embedded.temporal_binary import temporal_binary
from clotho.embedded.temporal_server import TemporalServer
from clotho.errors import Unavailable
from clotho.frozen_model import FrozenModel
from clotho.processes.child import ChildProcess
from clotho.processes.ports import free_port
from examples.grpo_tiny.kills import Announce, Strike
from examples.grpo_tiny.weights import write_damaged
from tests.cluster import Cluster, cluster_in

POLL_SECONDS = 0.2
PATIENCE = 600.0
"""Seconds without another step after which training counts as stuck."""


class Training(FrozenModel):
    """The settings of a training run."""

    run: str = "trl-tiny"
    steps: int = 20
    rate: float = 2e-4
    group_size: int = 8
    groups: int = 4
    """Groups of each step: all steps have the same items."""
    damage: float = 0.25
    """Noise on the matrices at the start, in deviations of their entries."""
    seed: int = 0
    """Seed of the damage, the items and the rollouts."""


class Chain:
    """One training run in a cluster's folder. Every part may be killed and started again."""

    def __init__(
        self, cluster: Cluster, python: str, training: Training, workers: dict[str, ChildProcess]
    ) -> None:
        self.cluster = cluster
        self.training = training
        self.killed: list[str] = []
        """Names of the parts that were killed so far."""
        self._python = python
        self.folder = cluster.folder / training.run
        self.start_weights, self.weights = self.folder / "start", self.folder / "weights"
        self.output = self.folder / "output"
        self.log = self.output / "log.jsonl"
        self.model = EmbeddedModelServer(self._log("model"), port=free_port(), weights=self.weights)
        self._port = free_port()
        self.api_url = f"http://127.0.0.1:{self._port}"
        self.api = ChildProcess(self._api(), self._log("api"))
        self.trainer = ChildProcess(self._trainer(), self._log("trainer"))
        self.parts: dict[str, EmbeddedModelServer | ChildProcess] = {
            **workers,
            "model server": self.model,
            "rollout API": self.api,
            "trainer": self.trainer,
        }

    @property
    def step(self) -> int:
        """The last step that has a checkpoint."""
        paths = self.output.glob("checkpoint-*/trainer_state.json")
        return max((int(path.parent.name.rpartition("-")[2]) for path in paths), default=0)

    async def train(self, strikes: Sequence[Strike], announce: Announce) -> float:
        """Train to the last step, with kills on the way; returns the seconds. Raises Unavailable if it is stuck."""
        started = time.monotonic()
        if not self.api.running:
            await self.api.start()
        await self.trainer.start()
        for strike in strikes:
            await self._until(strike.step - 1)
            await asyncio.sleep(strike.delay)
            if not self.trainer.running:
                break
            await self.parts[strike.part].kill()
            await self.parts[strike.part].start()
            self.killed.append(strike.part)
            announce(f"in step {strike.step}, killed and started again: {strike.part}")
        await self._until(None)
        return time.monotonic() - started

    async def _until(self, step: int | None) -> None:
        """Wait for the checkpoint of `step`; None: for the trainer's end."""
        last, since = -1, time.monotonic()
        while self.trainer.running and (step is None or self.step < step):
            if self.step > last:
                last, since = self.step, time.monotonic()
            if time.monotonic() - since > PATIENCE:
                raise Unavailable(f"no step within {PATIENCE:.0f} s after {last} [{self.trainer.log}]")
            await asyncio.sleep(POLL_SECONDS)
        if not self.trainer.running and await self.trainer.wait() != 0:
            raise Unavailable(f"the trainer ended: {self.trainer.last_words} [{self.trainer.log}]")

    def _log(self, part: str) -> Path:
        return self.folder / "logs" / f"{part}.log"

    def _api(self) -> list[str]:
        program = Path(sys.executable).with_name("clotho")
        place = ["--store", self.cluster.store_location, "--temporal", self.cluster.address]
        namespace = f"CLOTHO_TEMPORAL__NAMESPACE={self.cluster.client.namespace}"
        return ["env", namespace, str(program), "serve-rollouts", "--port", str(self._port), *place]

    def _trainer(self) -> list[str]:
        options = {
            "api": self.api_url,
            "server": self.model.url,
            "model": self.model.model,
            "start": self.start_weights,
            "weights": self.weights,
            "output": self.output,
            "log": self.log,
            "run": self.training.run,
            "steps": self.training.steps,
            "rate": self.training.rate,
            "group-size": self.training.group_size,
            "groups": self.training.groups,
            "seed": self.training.seed,
        }
        program = ["env", "TRL_EXPERIMENTAL_SILENCE=1", self._python, "-m", "examples.trl_tiny.train"]
        return [*program, *(f"--{name}={value}" for name, value in options.items())]


@asynccontextmanager
async def chain_in(folder: Path, python: str, training: Training, announce: Announce) -> AsyncIterator[Chain]:
    """All but the trainer and the API running, with damaged weights served."""
    server = TemporalServer(
        await temporal_binary(announce), folder / "temporal.log", ui_port=None, db=folder / "temporal.db"
    )
    async with server as temporal, cluster_in(temporal, folder / "cluster", training.run) as cluster:
        workers = {
            "model worker": await cluster.start_worker("llm"),
            "tool worker": await cluster.start_worker("workflows,tools"),
        }
        chain = Chain(cluster, python, training, workers)
        await asyncio.to_thread(
            write_damaged, BUNDLED, chain.start_weights, damage=training.damage, seed=training.seed
        )
        await asyncio.to_thread(shutil.copytree, chain.start_weights, chain.weights)
        try:
            async with chain.model:
                yield chain
        finally:
            await chain.trainer.kill()
            await chain.api.kill()
