"""The servers of a cluster, and the stage of one cell: a namespace, a store, three hosts and their gates."""

import asyncio
import os
import time
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from unittest.mock import patch

import boto3
from temporalio.client import Client
from temporalio.service import RPCError

from chaos.cluster.gate import Gate
from chaos.cluster.hosts import DISK_MEGABYTES, SANDBOXES, ClusterHost
from chaos.cluster.network import Network, network_of
from chaos.cluster.postgres import Postgres
from chaos.cluster.programs import obtain_s3, obtain_temporal
from chaos.cluster.temporal import ClusteredTemporal
from chaos.disk import SmallDisk
from chaos.stage import ENVIRONMENT, RUN, SEED, Size, journalled
from chaos.waiting import until
from clotho.config import TemporalSettings, settings_class
from clotho.embedded.model import EmbeddedModelServer
from clotho.errors import InvalidInput
from clotho.identifiers.ids import group_id, rollout_id
from clotho.journal import Journal
from clotho.journal.open_store import open_store
from clotho.models.endpoint import Endpoint
from clotho.plugins.demo.provider import Provider
from clotho.processes.child import ChildProcess
from clotho.processes.liveness import last_signs
from clotho.rollouts.task_queues import TaskQueues
from clotho.run_settings import RunSettings
from clotho.runs.campaigns import CampaignHandle, start_campaign
from clotho.runs.request import RunRequest, run_manifest
from clotho.temporal.connection import connect
from clotho.temporal.namespace import ensure_search_attributes
from clotho.testing.scripted_model import serving
from tests.cluster import register
from tests.s3_server import FOLDERS, S3Server

HOSTS = 3
BUCKET = "journals"
SIZE = Size(groups=6, group_size=2)
SERVING_SECONDS = 240.0


@dataclass
class ClusterServers:
    """The servers that all hosts share. Cells follow one another on it."""

    folder: Path
    network: Network
    postgres: Postgres
    temporals: list[ClusteredTemporal]
    s3: S3Server
    s3_process: ChildProcess
    model: EmbeddedModelServer
    temporal_gate: Gate
    s3_gate: Gate

    @property
    def objects(self) -> Path:
        """Folder of the bucket's objects."""
        return self.folder / "s3" / "objects" / BUCKET

    @property
    def variables(self) -> dict[str, str]:
        """Environment variables of every process of the cluster, and of its operator."""
        return {
            "AWS_ACCESS_KEY_ID": self.s3.access_key,
            "AWS_SECRET_ACCESS_KEY": self.s3.secret_key,
            "AWS_EC2_METADATA_DISABLED": "true",
            "CLOTHO_PLUGINS__S3__ENDPOINT": f"http://{self.s3_gate.address}",
        }

    async def restart_s3(self) -> None:
        await self.s3_process.start()
        await self.s3.ready()

    async def mend(self) -> None:
        """Start what a cell has left dead."""
        for temporal in self.temporals:
            if not temporal.process.running:
                await temporal.start()
        self.s3_gate.refused_share = 0.0
        self.temporal_gate.delays.clear()
        self.s3_gate.delays.clear()


@asynccontextmanager
async def cluster_servers_in(folder: Path) -> AsyncIterator[ClusterServers]:
    programs, s3_program = await obtain_temporal(), await obtain_s3()
    await asyncio.to_thread(folder.mkdir, mode=0o711, parents=True)
    async with AsyncExitStack() as stack:
        network = await stack.enter_async_context(network_of(HOSTS))
        postgres = Postgres(programs, folder / "postgres")
        stack.push_async_callback(postgres.stop)
        await postgres.create()
        pair = [ClusteredTemporal(programs, folder / f"temporal-{name}", postgres) for name in range(2)]
        for temporal in pair:
            stack.push_async_callback(temporal.stop)
        for name in FOLDERS:
            (folder / "s3" / name).mkdir(parents=True)
        s3 = S3Server.on_free_port(s3_program)
        assignments = [f"{name}={value}" for name, value in s3.administrator.items()]
        process = ChildProcess(
            ["env", *assignments, *s3.command(s3_program, folder / "s3")], folder / "s3.log"
        )
        stack.push_async_callback(process.stop)
        await process.start()
        await s3.ready()
        for temporal in pair:  # the first one writes what the cluster is, and two at once fail
            await temporal.start()
        model = await stack.enter_async_context(EmbeddedModelServer(folder / "model.log"))
        gates = [
            Gate(network.address, *(temporal.port for temporal in pair)),
            Gate(network.address, int(s3.endpoint.rpartition(":")[2])),
        ]
        for gate in gates:
            await gate.start()
            stack.push_async_callback(gate.stop)
        await asyncio.to_thread(_create_bucket, s3)
        servers = ClusterServers(folder, network, postgres, pair, s3, process, model, *gates)
        stack.enter_context(patch.dict(os.environ, servers.variables))
        yield servers


def _create_bucket(s3: S3Server) -> None:
    client = boto3.client(
        "s3",
        endpoint_url=s3.endpoint,
        region_name="us-east-1",
        aws_access_key_id=s3.access_key,
        aws_secret_access_key=s3.secret_key,
    )
    client.create_bucket(Bucket=BUCKET)


@dataclass
class ClusterStage:
    """One cell's namespace, store, provider and hosts."""

    servers: ClusterServers
    name: str
    client: Client
    journal: Journal
    provider: Provider
    provider_gate: Gate
    hosts: dict[int, ClusterHost]
    size: Size
    deaths: list[float] = field(default_factory=list)
    """When a host was killed."""

    @property
    def gates(self) -> tuple[Gate, ...]:
        return self.servers.temporal_gate, self.servers.s3_gate, self.provider_gate

    def rollouts(self) -> list[str]:
        return [
            rollout_id(group_id(RUN, group), sibling)
            for group in range(self.size.groups)
            for sibling in range(self.size.group_size)
        ]

    def entries(self) -> Mapping[str, frozenset[str]]:
        """The keys of each rollout, as the disk of the S3 server has them: also while it doesn't answer.

        `os.walk` passes over folders that are deleted meanwhile.
        """
        store = self.servers.objects / self.name
        return {
            rollout: frozenset(
                f"{folder}/{name}" for folder, _, names in os.walk(store / rollout) for name in names
            )
            for rollout in self.rollouts()
        }

    async def start_hosts(self, numbers: Collection[int]) -> None:
        """Start hosts that were never started, and return when they serve."""
        await asyncio.gather(*(self.hosts[number].start() for number in numbers))
        names = {f"{TaskQueues().model.queue}-{self.hosts[number].name}-0" for number in numbers}

        async def serving() -> bool:
            for number in numbers:
                if not (worker := self.hosts[number].worker).running:
                    raise RuntimeError(f"host {number}: {worker.last_words}")
            return names <= (await last_signs(self.journal)).keys()

        await until(serving, "workers on all hosts", SERVING_SECONDS, poll=0.5)

    async def start_again(self, numbers: Collection[int]) -> None:
        """Start dead hosts, under their own names and with the right time; they look after their sandboxes."""
        for number in numbers:
            self.hosts[number] = replace(self.hosts[number], name=f"h{number}", clock=0.0)
            await self.hosts[number].start()

    async def start_campaign(self) -> CampaignHandle:
        """Start the run, or attach to it."""
        model = self.servers.model.model
        manifest = run_manifest(
            ENVIRONMENT, RUN, model, group_size=self.size.group_size, seed=SEED, settings=RunSettings()
        )
        order = RunRequest(
            manifest=manifest,
            endpoint=Endpoint(base_url=f"http://{self.provider_gate.address}/v1"),
            groups=self.size.groups,
            max_open_groups=self.size.groups,
            task_queues=TaskQueues(),
        )
        return await start_campaign(self.client, self.journal, order)

    async def kill_host(self, number: int) -> None:
        await self.hosts[number].kill()
        # after it: until its processes are found and killed, which takes a while, the host asks for more
        self.deaths.append(time.monotonic())

    async def has_sandbox(self, number: int) -> bool:
        return bool(await self.hosts[number].sandboxes(self.journal.store_identity).leases())

    async def left_over(self) -> list[str]:
        identity = self.journal.store_identity
        left = await asyncio.gather(*(host.left_over(identity) for host in self.hosts.values()))
        return [each for of_host in left for each in of_host]

    @property
    def last_words(self) -> str:
        return "; ".join(f"{host.name}: {host.worker.last_words}" for host in self.hosts.values())


@asynccontextmanager
async def cluster_stage_on(
    servers: ClusterServers,
    name: str,
    *,
    latency: float,
    clocks: Mapping[int, float],
    small_disks: Collection[int] = (),
    size: Size = SIZE,
) -> AsyncIterator[ClusterStage]:
    """Hosts aren't started yet, and end with it. A model's answer takes `latency` seconds more than it would."""
    # Paths of sockets in sandboxes' folders are bounded, so folders have short names.
    folder, address = servers.folder / name.rpartition("-")[2][-6:], servers.temporal_gate.address
    folder.mkdir(mode=0o711)
    client = await connect(TemporalSettings(address=address, namespace=name))
    await register(client)
    await until(lambda: _has_attributes(client), "a namespace", SERVING_SECONDS, poll=0.25)
    endpoint = f"http://{servers.s3_gate.address}"
    settings = settings_class()(plugins={"s3": {"endpoint": endpoint}})
    store = await asyncio.to_thread(open_store, f"s3://{BUCKET}/{name}", settings)
    provider = Provider(servers.model.url, lambda key: journalled(servers.objects / name, key))
    provider.latency = latency
    async with AsyncExitStack() as stack:
        url = await stack.enter_async_context(serving(provider))
        gate = Gate(servers.network.address, int(url.removesuffix("/v1").rpartition(":")[2]))
        await gate.start()
        stack.push_async_callback(gate.stop)
        variables = {
            **servers.variables,
            "CLOTHO_STORE": f"s3://{BUCKET}/{name}",
            "TEMPORAL_ADDRESS": address,
            "CLOTHO_TEMPORAL__NAMESPACE": name,
        }
        hosts = {}
        for number in range(1, HOSTS + 1):
            own = folder / f"h{number}"
            own.mkdir(mode=0o711)
            disk = SmallDisk(own / SANDBOXES, DISK_MEGABYTES) if number in small_disks else None
            if disk is not None:
                await disk.mount()
                stack.push_async_callback(disk.unmount)
            clock = clocks.get(number, 0.0)
            hosts[number] = ClusterHost(
                number, f"h{number}", servers.network, own, variables, clock=clock, disk=disk
            )
        stage = ClusterStage(servers, name, client, Journal(store), provider, gate, hosts, size)
        stack.push_async_callback(_end, stage)
        yield stage


async def _has_attributes(client: Client) -> bool:
    """Whether the namespace has come to be known to both servers."""
    try:
        await ensure_search_attributes(client)
    except (InvalidInput, RPCError):
        return False
    return True


async def _end(stage: ClusterStage) -> None:
    await asyncio.gather(*(host.kill() for host in stage.hosts.values()))
