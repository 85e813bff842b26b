"""`clotho serve-rollouts` as a process beside a cluster's workers."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import httpx
from clotho_client.orders import Endpoint, Inference, Rendering, RunOrder

from clotho.embedded.model import EmbeddedModelServer
from clotho.processes.child import ChildProcess
from clotho.processes.ports import free_port
from clotho.rollouts.item import Item
from tests.cli.command import CLOTHO
from tests.cluster import Cluster
from tests.support import PATIENCE_SECONDS, eventually


class RolloutService:
    """One server at one port, over any number of deaths."""

    def __init__(self, cluster: Cluster, arguments: Sequence[str], variables: Sequence[str]) -> None:
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        place = ("--store", cluster.store_location, "--temporal", cluster.address)
        namespace = f"CLOTHO_TEMPORAL__NAMESPACE={cluster.client.namespace}"
        command = ["env", namespace, *variables, CLOTHO, "serve-rollouts", "--port", str(port), *place]
        self.process = ChildProcess([*command, *arguments], cluster.folder / f"rollouts-{port}.log")

    async def start(self) -> None:
        await self.process.start()
        await eventually(self.answers, "the rollout API answers")

    async def answers(self) -> bool:
        assert self.process.running, self.process.output
        try:
            async with httpx.AsyncClient(timeout=PATIENCE_SECONDS) as client:
                return (await client.get(f"{self.url}/openapi.json")).status_code in (200, 401)
        except httpx.TransportError:
            return False


@asynccontextmanager
async def serving_rollouts(
    cluster: Cluster, *arguments: str, variables: Sequence[str] = ()
) -> AsyncIterator[RolloutService]:
    service = RolloutService(cluster, arguments, variables)
    try:
        await service.start()
        yield service
    finally:
        await service.process.kill()


def file_item(number: int) -> Item:
    path, text = f"~/notes/river{number}.txt", "hello world"
    prompt = f"Create a file at {path} containing exactly the text: {text}"
    return {"kind": "create", "path": path, "text": text, "lines": [], "prompt": prompt}


def file_tasks(model: EmbeddedModelServer, **changes: object) -> RunOrder:
    """Groups of the embedded policy."""
    order = RunOrder(
        environment="file_tasks",
        model=model.model,
        endpoint=Endpoint(base_url=f"{model.url}/v1", inference=Inference.TOKENS),
        rendering=Rendering(tool_call_parser="hermes"),
        group_size=2,
    )
    return order.model_copy(update=changes)
