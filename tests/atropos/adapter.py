"""The adapter as a process, and the trainer that it delivers to."""

import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import yaml

from clotho.embedded.model import EmbeddedModelServer
from clotho.identifiers.keys import delivered_key
from clotho.processes.child import ChildProcess
from clotho.rollouts.item import Delivery
from tests.atropos_api.service import TRAINER, Api
from tests.cluster import Cluster
from tests.support import PATIENCE_SECONDS, eventually

PROGRAM = str(Path("atropos_adapter.py").resolve())
TOKENIZER = str(Path("clotho/embedded/model/weights").resolve())
GROUP_SIZE = 4
BATCH = 8


def command(
    cluster: Cluster,
    mode: str,
    run: str,
    *model_urls: str,
    program: Sequence[str] = (PROGRAM,),
    model: str = "clotho-tiny",
    wandb_folder: Path | None = None,
    **fields: Any,
) -> list[str]:
    """`python atropos_adapter.py MODE …`; `fields` are of the environment's configuration.

    Several servers are told in a file.
    """
    settings = {
        "run": run,
        "store": cluster.store_location,
        "temporal": cluster.address,
        "environment": "file_tasks",
        "tokenizer_name": TOKENIZER,
        "group_size": GROUP_SIZE,
        "use_wandb": False,
        **fields,
    }
    flags = [f"--env.{name}={value}" for name, value in settings.items() if value is not None]
    servers = [
        {"base_url": f"{url}/v1", "model_name": model, "api_key": "a-secret-key"} for url in model_urls
    ]
    if len(servers) == 1:
        flags += [f"--openai.{name}={value}" for name, value in servers[0].items()]
    else:
        file = cluster.folder / f"{run}.yaml"
        file.write_text(yaml.safe_dump({"openai": servers}))
        flags.append(f"--config={file}")
    return [
        "env",
        f"CLOTHO_TEMPORAL__NAMESPACE={cluster.client.namespace}",
        f"CLOTHO_SANDBOX__ROOT={cluster.folder / 'sandboxes'}",
        f"CLOTHO_HOST={cluster.host_name}",
        "WANDB_MODE=offline",
        f"WANDB_X_SERVICE_WAIT={PATIENCE_SECONDS}",
        f"WANDB_INIT_TIMEOUT={PATIENCE_SECONDS}",
        f"WANDB_DIR={wandb_folder or cluster.folder}",
        sys.executable,
        *program,
        mode,
        *flags,
    ]


class Adapter:
    """One adapter over any number of deaths."""

    def __init__(self, cluster: Cluster, log: Path, argv: list[str]) -> None:
        self.cluster = cluster
        self.argv = argv
        self.process = ChildProcess(argv, log)

    async def start(self, **variables: str) -> None:
        """`variables` are of this life's environment only."""
        assignments = [f"{name}={value}" for name, value in variables.items()]
        self.process = ChildProcess(["env", *assignments, *self.argv], self.process.log)
        await self.process.start()


@asynccontextmanager
async def serving(
    cluster: Cluster, run: str, model: EmbeddedModelServer, api: Api, **fields: Any
) -> AsyncIterator[Adapter]:
    argv = command(
        cluster, "serve", run, model.url, rollout_server_url=f"http://127.0.0.1:{api.port}", **fields
    )
    adapter = Adapter(cluster, cluster.folder / f"adapter-{run}.log", argv)
    try:
        yield adapter
    finally:
        await adapter.process.kill()


async def register_trainer(api: Api, **fields: Any) -> None:
    registration = {**TRAINER, "batch_size": BATCH, "max_token_len": 4096, "starting_step": 0, **fields}
    assert (await api.http.post("/register", json=registration)).status_code == 200
    await api.http.get("/batch")


async def take_groups(api: Api, wanted: int) -> list[dict[str, Any]]:
    """At least `wanted` groups, as the trainer gets them in batches."""
    groups: list[dict[str, Any]] = []

    async def enough() -> bool:
        batch = (await api.http.get("/batch")).json()["batch"]
        groups.extend(batch or [])
        return len(groups) >= wanted

    await eventually(enough, f"{wanted} groups delivered, there are {len(groups)}")
    return groups


async def deliveries(cluster: Cluster, run: str) -> dict[str, Delivery]:
    """What the ledger says of each group that is delivered or dropped."""
    journal = cluster.open_journal()
    drawn = [key for key in await journal.keys(f"{run}/") if key.endswith("/delivered")]
    entries = await journal.read_many(drawn, Delivery)
    return {
        key.removesuffix("/delivered"): entry
        for key, entry in zip(drawn, entries, strict=True)
        if entry is not None and key == delivered_key(key.removesuffix("/delivered"))
    }


def name_of(group: dict[str, Any]) -> str:
    """The group that the rows are of, as both APIs hand it on."""
    first: str = group["generation_params"]["rollouts"][0]
    return first.rpartition("/")[0]
