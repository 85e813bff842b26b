"""Where delivery is played: a worker, the adapter, the durable API and a trainer, each of which may die."""

import asyncio
import sys
from collections.abc import AsyncIterator, Collection
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from chaos.delivery.size import GROUP_SIZE
from chaos.delivery.trainer import Received, answers_without_batch, one_batch, received
from chaos.servers import Servers
from chaos.stage import MOST_LEASES, RUN, SEED, destroy_sandboxes, sandbox_folder_of
from clotho.config import TemporalSettings
from clotho.embedded.model.bundled import BUNDLED
from clotho.identifiers.ids import rollout_id
from clotho.identifiers.keys import lease_key
from clotho.processes.child import ChildProcess
from clotho.processes.ports import free_port
from clotho.rollouts.item import Delivery
from clotho.runs.ledger import Ledger
from clotho.temporal.connection import connect
from tests.cluster import Cluster, register

PROGRAM = Path(sys.executable).with_name("clotho")
ENVIRONMENT = "chaos.delivery.tasks:FewFileTasks"
ADAPTER, API, TRAINER, WORKER = "adapter", "api", "trainer", "worker"


@dataclass
class DeliveryStage:
    """One cell's own namespace, store and sandboxes, and the four processes of its chain."""

    servers: Servers
    cluster: Cluster
    rules: str
    """Fail points, armed in all four."""
    port: int
    engine: None = None
    """Its sandboxes are local."""

    def __post_init__(self) -> None:
        self.fail_folder = self.cluster.folder / "fail"
        self._record = self.cluster.folder / "received.jsonl"
        self._parts: dict[str, ChildProcess] = {}

    @property
    def api_url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def start(self) -> None:
        await asyncio.to_thread(self.fail_folder.mkdir)
        self._parts[WORKER] = await self.cluster.start_worker(**self._armed())
        for part, command in self._commands().items():
            self._parts[part] = ChildProcess(command, self.cluster.folder / f"{part}.log")
            await self._parts[part].start()

    async def kill(self, parts: Collection[str], *, between_batches: bool = False) -> None:
        """SIGKILL; a trainer among them is struck while no batch is on its way into its record, if so asked."""
        with ExitStack() as idle:
            if TRAINER in parts and between_batches:
                await asyncio.to_thread(idle.enter_context, one_batch(self._record))
            await asyncio.gather(*(self._parts[part].kill() for part in parts))

    async def answers_without_batch(self) -> int:
        """How often the API had no batch for a trainer."""
        return await asyncio.to_thread(answers_without_batch, self._record)

    async def start_again(self, parts: Collection[str]) -> None:
        """Fail points fire once: they stay quiet in the new processes."""
        await asyncio.gather(*(self._parts[part].start() for part in parts))

    def ended(self) -> str | None:
        """Return the output of a part that ended by itself; None while all run."""
        for name, part in self._parts.items():
            if not part.running:
                return f"{name} ended by itself: {part.last_words}"
        return None

    async def received(self) -> list[Received]:
        """The batches that trainers had, in order."""
        return await asyncio.to_thread(lambda: list(received(self._record)))

    async def deliveries(self) -> dict[str, Delivery | None]:
        """Return the delivery of each group drawn so far; None for a group that is still under way."""
        ledger = Ledger(self.cluster.open_journal(), RUN)
        return {claim.group: await ledger.delivery(claim.group) for claim in await ledger.load()}

    async def end(self) -> None:
        await self.kill(self._parts)
        leases = [
            lease_key(rollout_id(group, sibling), number)
            for group in await self.deliveries()
            for sibling in range(GROUP_SIZE)
            for number in range(MOST_LEASES)
        ]
        await destroy_sandboxes(self.cluster, sandbox_folder_of(self.cluster), leases)

    def _commands(self) -> dict[str, list[str]]:
        queue = ["--queue", str(self.cluster.folder / "queue.sqlite")]
        programs = {
            API: [str(PROGRAM), "atropos-api", "--port", str(self.port), *queue],
            TRAINER: [
                sys.executable,
                *("-m", "chaos.delivery.trainer", "--api", self.api_url, "--record", str(self._record)),
            ],
            ADAPTER: [sys.executable, "atropos_adapter.py", "serve", *self._of_adapter()],
        }
        variables = [f"{name}={value}" for name, value in self._armed().items()]
        variables += [
            f"CLOTHO_TEMPORAL__NAMESPACE={self.cluster.client.namespace}",
            f"CLOTHO_SANDBOX__ROOT={self.cluster.folder / 'sandboxes'}",
        ]
        return {part: ["env", *variables, *program] for part, program in programs.items()}

    def _armed(self) -> dict[str, str]:
        return {"CLOTHO_FAIL": self.rules, "CLOTHO_FAIL_FOLDER": str(self.fail_folder)}

    def _of_adapter(self) -> list[str]:
        of_env = {
            "run": RUN,
            "store": self.cluster.store_location,
            "temporal": self.cluster.address,
            "environment": ENVIRONMENT,
            "tokenizer_name": BUNDLED,
            "group_size": GROUP_SIZE,
            "seed": SEED,
            "rollout_server_url": self.api_url,
            # Rollouts of the embedded model often earn alike: which do shall not decide what is delivered.
            "ensure_scores_are_not_same": False,
            "use_wandb": False,
        }
        of_server = {"base_url": f"{self.servers.model.url}/v1", "model_name": self.servers.model.model}
        return [
            *(f"--env.{field}={value}" for field, value in of_env.items()),
            *(f"--openai.{field}={value}" for field, value in of_server.items()),
        ]


@asynccontextmanager
async def delivery_stage_on(servers: Servers, name: str, rules: str) -> AsyncIterator[DeliveryStage]:
    """Everything ends with it."""
    folder = servers.folder / name
    await asyncio.to_thread(folder.mkdir, mode=0o711)
    client = await connect(TemporalSettings(address=servers.temporal.address, namespace=name))
    await register(client)
    stage = DeliveryStage(servers, Cluster(client, folder, servers.temporal.address), rules, free_port())
    try:
        await stage.start()
        yield stage
    finally:
        await stage.end()
