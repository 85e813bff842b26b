"""Where a cell is played: servers of its own, a campaign of fixed size, and worker processes that may die."""

import asyncio
import os
import resource
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from chaos.containers.engine import PodmanEngine, engine_in
from chaos.disk import SmallDisk
from chaos.link import Link
from chaos.servers import ScriptedTasks, Servers, Upstream
from chaos.ssh_host import SandboxHost, sandbox_host_in
from clotho.config import SandboxSettings, TemporalSettings
from clotho.errors import InvalidInput
from clotho.identifiers.ids import BEGAN, group_id, group_of, rollout_id
from clotho.identifiers.keys import lease_key
from clotho.journal.folder import FilesystemStore
from clotho.plugins.containers.config import DockerConfig
from clotho.plugins.demo.kill_processes import files_of_lease
from clotho.plugins.demo.provider import Provider
from clotho.processes.child import ChildProcess
from clotho.rollouts.agent import Agent
from clotho.run_settings import RunSettings
from clotho.runs.campaigns import CampaignHandle
from clotho.runs.operations import Operations
from clotho.temporal.connection import connect
from clotho.temporal.namespace import ensure_search_attributes
from clotho.testing.scripted_model import serving
from tests.cluster import FAST, Cluster, register
from tests.machine_image import IMAGE

RUN = "chaos"
ENVIRONMENT = "_marked_file_tasks"
SEED = 7
MOST_LEASES = 8
HEARTBEAT = FAST.model.heartbeat_timeout.total_seconds()
LLM, TOOLS = "llm", "workflows,tools"
ROLES = (LLM, TOOLS)
APART = {roles: roles for roles in ROLES}
"""Workers by name, and their roles: those that call models are apart, so that a fault strikes one kind."""
EQUAL = dict.fromkeys(("one", "other"), f"{LLM},{TOOLS}")
STORE, SANDBOXES = "store", "sandboxes"
DISK_MEGABYTES = {STORE: 16, SANDBOXES: 512}

CONTAINED = {
    "sandbox": DockerConfig(image=IMAGE, pull="never", workdir="/work").model_dump_json(),
    "memory_mb": 256,
}
OUTSIDE = "/etc/left-by-a-command"
"""Touched by every command in a container, so that its verifier's is made of a commit."""


@dataclass(frozen=True)
class Size:
    groups: int = 3
    group_size: int = 2


@dataclass
class Stage:
    """One cell's own namespace, store, sandboxes, provider, link to Temporal and workers."""

    servers: Servers
    cluster: Cluster
    provider: Provider
    provider_url: str
    upstream: Upstream
    """The model server behind the provider."""
    link: Link
    disks: Mapping[str, SmallDisk]
    """Those that were asked for, by the folder that is on them."""
    size: Size
    engine: PodmanEngine | None = None
    """That of its sandboxes; None where they are in no container."""
    ssh: SandboxHost | None = None
    """The host of its sandboxes; None where they are made by workers."""
    script: ScriptedTasks | None = None
    """The tasks that are played in place of those of the embedded model."""
    workers: Mapping[str, str] = field(default_factory=lambda: APART)
    """Roles of its workers, by their names."""
    deaths: list[float] = field(default_factory=list)
    """When a process that calls models was killed."""
    unexpected_exits: int = 0
    """Workers that ended by themselves, and were started again as a supervisor of processes would."""
    struck_regular: bool = False
    """Whether a step that was to be struck here had gone on as a regular activity by then."""
    _store: FilesystemStore = field(init=False)
    _workers: dict[str, ChildProcess] = field(default_factory=dict)
    _keeping: dict[str, "asyncio.Task[None]"] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._store = FilesystemStore(self.cluster.store)

    @property
    def sandbox_folder(self) -> Path:
        return sandbox_folder_of(self.cluster)

    @property
    def podman(self) -> PodmanEngine:
        assert self.engine is not None, "its sandboxes are in containers"
        return self.engine

    @property
    def far(self) -> SandboxHost:
        assert self.ssh is not None, "its sandboxes are made through ssh"
        return self.ssh

    def groups(self) -> list[str]:
        return [group_id(RUN, number) for number in range(self.size.groups)]

    def rollouts(self) -> list[str]:
        siblings = range(self.size.group_size)
        return [rollout_id(group, sibling) for group in self.groups() for sibling in siblings]

    def possible_leases(self) -> list[str]:
        return [lease_key(rollout, number) for rollout in self.rollouts() for number in range(MOST_LEASES)]

    async def start_workers(self, **settings: str) -> None:
        for name, roles in self.workers.items():
            self._workers[name] = await self.cluster.start_worker(roles, **settings)
            self._keep(name)

    async def start_more_workers(self) -> None:
        """Beside those there are, which nothing strikes any more: in the namespace that the stage has by now."""
        for roles in ROLES:
            name = f"{roles} in {self.cluster.client.namespace}"
            self._workers[name] = await self.cluster.start_worker(roles)
            self._keep(name)

    def keep_doing(self, name: str, step: Callable[[], Awaitable[None]], seconds: float) -> None:
        """Repeat it, with a pause between, until the stage ends."""

        async def repeated() -> None:
            while True:
                await step()
                await asyncio.sleep(seconds)

        self._keeping[name] = asyncio.create_task(repeated())

    async def is_usable(self) -> bool:
        """Whether the namespace is there, as it isn't for a moment after its database was deleted."""
        try:
            await ensure_search_attributes(self.cluster.client)
        except InvalidInput:
            return False
        return True

    async def start_campaign(self) -> CampaignHandle:
        """Start the run, attach to it, or start it again to do what is left."""
        return await self.cluster.start(
            RUN,
            self.provider_url,
            environment=ENVIRONMENT if self.script is None else self.script.environment,
            model=self.upstream.model,
            groups=self.size.groups,
            group_size=self.size.group_size,
            seed=SEED,
            agent=Agent() if self.script is None else self.script.agent,
            settings=self._settings,
        )

    @property
    def operations(self) -> Operations:
        return Operations(self.cluster.open_journal(), self.cluster.client)

    async def has_continued(self, workflow: str) -> bool:
        """Whether it has continued as new."""
        described = await self.cluster.client.get_workflow_handle(workflow).describe()
        return described.raw_description.workflow_execution_info.first_run_id != described.run_id

    @property
    def _settings(self) -> RunSettings:
        sandbox = {"sandbox": "ssh"} if self.ssh is not None else {}
        settings = RunSettings() if self.script is None else self.script.settings
        return settings.model_copy(update=CONTAINED if self.engine is not None else sandbox)

    @property
    def last_words(self) -> str:
        """The last line that each worker has logged."""
        return "; ".join(f"{roles}: {worker.last_words}" for roles, worker in self._workers.items())

    def roles_of(self, pid: int) -> str:
        return next(roles for roles, worker in self._workers.items() if worker.pid == pid)

    def pid_of(self, roles: str) -> int:
        pid = self._workers[roles].pid
        assert pid is not None
        return pid

    async def kill_worker(self, roles: str) -> None:
        self._keeping.pop(roles).cancel()
        if LLM in self.workers.get(roles, roles):
            self.deaths.append(time.monotonic())
        await self._workers[roles].kill()

    async def restart_worker(self, roles: str) -> None:
        """Fail points fire once: they stay quiet in the new process."""
        await self._workers[roles].start()
        self._keep(roles)

    def signal_worker(self, roles: str, number: signal.Signals) -> None:
        os.kill(self.pid_of(roles), number)

    def limit_files(self, roles: str, files: int) -> int:
        """Set how many descriptors a worker may have; returns how many it might before."""
        before, most = resource.prlimit(self.pid_of(roles), resource.RLIMIT_NOFILE)
        resource.prlimit(self.pid_of(roles), resource.RLIMIT_NOFILE, (files, most))
        return before

    def _keep(self, roles: str) -> None:
        self._keeping[roles] = asyncio.create_task(self._kept(roles))

    async def _kept(self, roles: str) -> None:
        while True:
            await self._workers[roles].wait()
            self.unexpected_exits += 1
            await asyncio.sleep(1)
            await self._workers[roles].start()

    def stop_keeping(self) -> None:
        for keeping in self._keeping.values():
            if keeping.done():
                keeping.result()  # it ends for no other reason than an error
            keeping.cancel()
        self._keeping.clear()

    async def entries(self, prefix: str) -> frozenset[str]:
        return frozenset(await self._store.keys(prefix))

    async def entries_of(self, rollout: str) -> frozenset[str]:
        """Those of its children as well."""
        keys = await self.entries(f"{group_of(rollout)}/")
        return frozenset(key for key in keys if is_part_of(key, rollout))


def is_part_of(key: str, rollout: str) -> bool:
    """Whether a key, or a lease, is one of the rollout or of a child of it."""
    return key.startswith((f"{rollout}/", f"{rollout}{BEGAN}"))


def sandbox_folder_of(cluster: Cluster) -> Path:
    return SandboxSettings(root=cluster.sandbox_root).folder_of(cluster.store_identity)


def journalled(store: Path, key: str) -> bool:
    return (store / key).exists() or (store / "/".join(key.split("/")[:3]) / "sealed").exists()


@asynccontextmanager
async def stage_on(
    servers: Servers,
    name: str,
    size: Size,
    *,
    small_disks: Collection[str],
    slow: Mapping[str, int],
    images: Path | None = None,
    through_ssh: bool = False,
    script: ScriptedTasks | None = None,
    workers: Mapping[str, str] = APART,
) -> AsyncIterator[Stage]:
    """Everything ends with it: workers, sandboxes and mounts. With `images`, sandboxes are in containers.

    With a `script`, its tasks are played in place of those of the embedded model.
    """
    folder = servers.folder / name
    folder.mkdir(mode=0o711)
    client = await connect(TemporalSettings(address=servers.temporal.address, namespace=name))
    await register(client)
    async with AsyncExitStack() as stack:
        link = Link(servers.temporal.port)
        await link.start()
        stack.push_async_callback(link.stop)
        disks = {name: SmallDisk(folder / name, DISK_MEGABYTES[name]) for name in small_disks}
        for disk in disks.values():
            await disk.mount()
            stack.push_async_callback(disk.unmount)
        engine = await stack.enter_async_context(engine_in(folder / "engine", images)) if images else None
        far = await stack.enter_async_context(sandbox_host_in(folder)) if through_ssh else None
        cluster = Cluster(
            client,
            folder,
            link.address,
            docker_host=engine.address if engine else None,
            ssh_host=far.settings if far else None,
        )
        upstream: Upstream = servers.model
        if script is not None:
            serving_script = script.served(folder, max(slow.values(), default=0))
            upstream = await stack.enter_async_context(serving_script)
        provider = Provider(upstream.url, lambda key: journalled(cluster.store, key), slow)
        provider.marks_commands = script is None
        provider.touched = OUTSIDE if engine else ""
        url = await stack.enter_async_context(serving(provider))
        stage = Stage(
            servers, cluster, provider, url, upstream, link, disks, size, engine, far, script, workers
        )
        stack.push_async_callback(end, stage)
        yield stage


async def end(stage: Stage) -> None:
    stage.stop_keeping()
    stage.link.heal()
    await asyncio.gather(*(worker.kill() for worker in stage.cluster.workers))
    if stage.engine is None:  # it takes its containers with it
        await destroy_sandboxes(stage.cluster, stage.sandbox_folder, stage.possible_leases())


async def destroy_sandboxes(cluster: Cluster, folder: Path, possible_leases: Iterable[str]) -> None:
    backend = cluster.sandboxes()
    for lease in possible_leases:
        # A worker that was killed while it made one has left it without a record: nobody lists it yet.
        if files_of_lease(folder, lease).exists():
            await backend.destroy(lease)
    await cluster.destroy_sandboxes()
