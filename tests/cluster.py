"""A namespace, a store and worker processes, as a deployment has them: for tests and benchmarks."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from temporalio.api.workflowservice.v1 import RegisterNamespaceRequest
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from clotho import application
from clotho.config import TemporalSettings, settings_class
from clotho.journal import Journal
from clotho.journal.folder import FilesystemStore, filesystem_identity
from clotho.models.backend import Inference
from clotho.models.endpoint import Endpoint
from clotho.plugins.ssh.address import SshHost
from clotho.processes.child import ChildProcess
from clotho.processes.liveness import Liveness
from clotho.rollouts.group import RepairBounds
from clotho.rollouts.item import Item
from clotho.rollouts.task_queues import TaskQueues
from clotho.runs.campaigns import CampaignHandle, start_campaign
from clotho.runs.request import RunRequest, run_manifest
from clotho.runs.rollouts import is_superseded
from clotho.sandbox.backend import SandboxBackend
from clotho.sandbox.reaper import SandboxReaper
from clotho.sandbox.registry import open_backend
from clotho.temporal.connection import connect
from clotho.temporal.states import RolloutOwners, namespace_labels

FAST = TaskQueues(
    workflow_task_timeout=timedelta(seconds=6),
    model=TaskQueues().model.model_copy(update={"heartbeat_timeout": timedelta(seconds=5)}),
    environment=TaskQueues().environment.model_copy(update={"heartbeat_timeout": timedelta(seconds=5)}),
    sandbox=TaskQueues().sandbox.model_copy(update={"heartbeat_timeout": timedelta(seconds=5)}),
)
"""Dead workers are noticed soon, so that tests of their death don't wait long."""
REPAIRS = RepairBounds()


@dataclass
class Cluster:
    """A running Clotho under test: its store, its namespace and its workers."""

    client: Client
    folder: Path
    address: str
    workers: list[ChildProcess] = field(default_factory=list)
    host: str = ""
    """The host name that workers use; empty: the namespace's."""
    docker_host: str | None = None
    """Address of the engine of sandboxes in containers."""
    ssh_host: SshHost | None = None
    """This machine under another name: where sandboxes are made through ssh."""

    def in_namespace(self, client: Client) -> "Cluster":
        """The same store, sandboxes and host, in the client's namespace."""
        return replace(self, client=client, host=self.host_name)

    @property
    def host_name(self) -> str:
        # Its end is its own: processes of two hosts with one name would take each other's numbers.
        return self.host or f"host-{self.client.namespace[-20:]}"

    @property
    def store(self) -> Path:
        return self.folder / "store"

    @property
    def store_location(self) -> str:
        """Environment variables of the workers."""
        return str(self.store)

    @property
    def store_identity(self) -> str:
        return filesystem_identity(self.store)

    @property
    def sandbox_root(self) -> Path:
        """The root of the sandboxes' folders, on the machine that they are made on."""
        return self.folder / "sandboxes" if self.ssh_host is None else Path(self.ssh_host.root)

    def open_journal(self) -> Journal:
        """A reader of its own, without the cache of another."""
        return Journal(FilesystemStore(self.store))

    @property
    def host_variables(self) -> dict[str, str]:
        """Environment variables of every process on the host of this cluster's sandboxes."""
        places = {"CLOTHO_PLUGINS__CONTAINERS__DOCKER_HOST": self.docker_host} if self.docker_host else {}
        if self.ssh_host is not None:
            hosts = f"[{self.ssh_host.model_dump_json()}]"
            places |= {"CLOTHO_SANDBOX__BACKEND": "ssh", "CLOTHO_PLUGINS__SSH__HOSTS": hosts}
        return places | {
            "CLOTHO_TEMPORAL__NAMESPACE": self.client.namespace,
            "CLOTHO_SANDBOX__ROOT": str(self.folder / "sandboxes"),
            "CLOTHO_HOST": self.host_name,
        }

    async def start_worker(
        self,
        roles: str = "workflows,tools,llm",
        under: Sequence[str] = (),
        processes: str = "1",
        **settings: str,
    ) -> ChildProcess:
        """A worker, with further `settings` as environment variables, started by the command `under`.

        With several `processes` it is their parent.
        """
        soon = {"CLOTHO_WORKER__DRAIN_SECONDS": "30", "CLOTHO_WORKER__CACHED_SECONDS": "2"}
        variables = {**self.host_variables, **soon, **settings}
        assignments = [f"{name}={value}" for name, value in variables.items()]
        command = application.command("worker", "--roles", roles, "--processes", processes)
        command += ["--store", self.store_location, "--temporal", self.address]
        worker = ChildProcess(
            ["env", *assignments, *under, *command], self.folder / f"worker-{len(self.workers)}.log"
        )
        await worker.start()
        self.workers.append(worker)
        return worker

    def sandboxes(self, lease_seconds: float = 600.0) -> SandboxBackend:
        """The sandboxes of this cluster's workers."""
        settings = settings_class()(
            sandbox={"root": self.sandbox_root, "lease_seconds": lease_seconds},
            plugins={"containers": {"docker_host": self.docker_host}},
        )
        return open_backend(settings, settings.sandbox.folder_of(self.store_identity))

    def reaper(self, lease_seconds: float = 600.0) -> "ClusterReaper":
        """The reaper that a worker of this cluster runs every minute, for a test to run at once."""
        return ClusterReaper(self, self.sandboxes(), lease_seconds)

    async def destroy_sandboxes(self) -> None:
        """Destroy the sandboxes that killed workers left, complete or not: no test waits for leases to expire."""
        backend = self.sandboxes()
        for held in await backend.leases():
            await backend.destroy(held.lease)
        await backend.reap()

    @asynccontextmanager
    async def present(self, queue: str) -> AsyncIterator[None]:
        """Who serves `queue` shows that it lives, however long it is frozen, or takes to start."""
        beats = asyncio.create_task(Liveness(self.open_journal(), queue).run())
        try:
            yield
        finally:
            beats.cancel()

    async def start(
        self,
        run: str,
        model_url: str,
        *,
        environment: str,
        model: str = "scripted",
        groups: int = 1,
        group_size: int = 1,
        items: tuple[Item, ...] | None = None,
        max_open_groups: int = 16,
        api_key_variable: str | None = None,
        inference: Inference = Inference.CHAT,
        task_queues: TaskQueues = FAST,
        repairs: RepairBounds = REPAIRS,
        stop_after_failures: int = 8,
        priority: int | None = None,
        **manifest: Any,
    ) -> CampaignHandle:
        """Start a run as `clotho run` does."""
        order = RunRequest(
            manifest=run_manifest(environment, run, model, group_size=group_size, **manifest),
            endpoint=Endpoint(base_url=model_url, api_key_variable=api_key_variable, inference=inference),
            groups=groups,
            max_open_groups=max_open_groups,
            items=items,
            task_queues=task_queues,
            repairs=repairs,
            stop_after_failures=stop_after_failures,
            priority=priority,
        )
        return await start_campaign(self.client, self.open_journal(), order)


class ClusterReaper:
    """The reaper of a cluster's worker, which asks Temporal for its labels when it looks."""

    def __init__(self, cluster: Cluster, backend: SandboxBackend, lease_seconds: float) -> None:
        self._cluster = cluster
        self._backend = backend
        self._lease_seconds = lease_seconds

    async def look(self) -> None:
        client, journal = self._cluster.client, self._cluster.open_journal()
        labels = await namespace_labels(client, journal.store_identity)
        superseded, owners = partial(is_superseded, journal), RolloutOwners(client)
        await SandboxReaper(self._backend, owners, superseded, labels, self._lease_seconds).look()


class AtAddress(Protocol):
    """A Temporal server."""

    @property
    def address(self) -> str: ...


@asynccontextmanager
async def cluster_in(
    temporal: AtAddress,
    folder: Path,
    namespace: str,
    kind: Callable[[Client, Path, str], Cluster] = Cluster,
) -> AsyncIterator[Cluster]:
    await asyncio.to_thread(folder.mkdir, mode=0o711, exist_ok=True)
    settings = TemporalSettings(address=temporal.address, namespace=namespace)
    client = await connect(settings)
    await register(client)
    cluster = kind(client, folder, temporal.address)
    try:
        yield cluster
    finally:
        await asyncio.gather(*(worker.stop() for worker in cluster.workers))
        await cluster.destroy_sandboxes()


async def register(client: Client) -> None:
    request = RegisterNamespaceRequest(namespace=client.namespace)
    request.workflow_execution_retention_period.FromTimedelta(timedelta(days=1))
    try:
        await client.workflow_service.register_namespace(request)
    except RPCError as error:
        if error.status != RPCStatusCode.ALREADY_EXISTS:
            raise
