"""Everything a run needs, on one machine: Temporal, the embedded model, the workers and a store."""

import asyncio
import fcntl
import shutil
import tempfile
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from temporalio.client import Client

from clotho import application
from clotho.config import DevelopmentServices, Settings
from clotho.embedded.model import EmbeddedModelServer
from clotho.embedded.temporal_binary import Announce, temporal_binary
from clotho.embedded.temporal_server import TemporalServer
from clotho.errors import ClothoError, InvalidInput, Unavailable
from clotho.journal import Journal
from clotho.journal.folder import FilesystemStore, filesystem_identity
from clotho.processes.child import ChildProcess
from clotho.processes.ports import claim, free_port, take
from clotho.processes.roles import ROLES
from clotho.sandbox.isolation import UNISOLATED
from clotho.sandbox.registry import open_backend, own_backend
from clotho.temporal.conversion import DATA_CONVERTER

TEMPORAL_PORT = 7233
UI_PORT = 8233
MODEL_PORT = 8101
DRAIN_SECONDS = 5.0
SPACE_BYTES = 64 << 20
"""Free space on the disk below which services aren't started."""
ENDING = "ending"
"""Content of the lock file while the services that hold it stop."""
ELSEWHERE = ("TEMPORAL_API_KEY", "TEMPORAL_TLS", "TEMPORAL_PROFILE")
"""Variables with which the worker would look for another Temporal server than the one that is given."""

Result = TypeVar("Result")


@dataclass(frozen=True)
class Ports:
    temporal: int = TEMPORAL_PORT
    ui: int = UI_PORT
    model: int = MODEL_PORT

    @classmethod
    def free(cls) -> "Ports":
        """The usual ports that this process can take, and others for the rest."""
        usual = cls()
        return cls(*(port if take(port) else free_port() for port in (usual.temporal, usual.ui, usual.model)))


@dataclass(frozen=True)
class Services:
    """The services that are running, and their addresses."""

    temporal: TemporalServer
    model: EmbeddedModelServer
    worker: ChildProcess
    logs: Path

    @property
    def ui(self) -> str:
        assert self.temporal.ui_url is not None
        return self.temporal.ui_url

    @property
    def model_url(self) -> str:
        return f"{self.model.url}/v1"

    async def during(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Do `work`; raises Unavailable with a service's last words if that ends by itself meanwhile."""
        processes = {"Temporal": self.temporal.process, "the embedded model": self.model.process}
        return await while_running(work, {**processes, "the workers": self.worker}, show_log=True)


@asynccontextmanager
async def local_services(
    settings: Settings, ports: Ports, announce: Announce, hurry: asyncio.Event
) -> AsyncIterator[Services]:
    """Start everything, and stop it in the reverse order: the workers drain while the servers still answer.

    `hurry` ends what workers have in flight. Raises InvalidInput for a port in use, a Temporal binary that
    can't be had, a full disk, or a store whose services run already.
    """
    folder = settings.folder
    logs = folder / "logs"
    async with AsyncExitStack() as stack:
        ending = stack.enter_context(exclusive(folder))
        check_space(folder)
        # before the binary, whose build takes minutes
        for port in (ports.temporal, ports.ui, ports.model):
            claim(port)
        binary = await temporal_binary(announce)
        temporal = TemporalServer(
            binary, logs / "temporal.log", port=ports.temporal, ui_port=ports.ui, db=folder / "temporal.db"
        )
        model = EmbeddedModelServer(logs / "model.log", port=ports.model)
        # before they start: where one start fails, what the others have started is stopped
        stack.push_async_callback(temporal.stop)
        stack.push_async_callback(model.stop)
        await together(temporal.start(), model.start(), tell_isolation(settings, announce))
        announce(f"Temporal         {temporal.address}, UI {temporal.ui_url}")
        announce(f"embedded model   {model.url}/v1")
        command = application.unversioned_worker(settings.store, temporal.address)
        worker = ChildProcess(command, logs / "worker.log")
        stack.push_async_callback(drained, worker, settings.worker.drain_seconds, hurry)
        await worker.start()
        announce(f"workers          logs in {logs}")
        where = DevelopmentServices(
            temporal=temporal.address, ui=temporal.ui_url or "", model=f"{model.url}/v1"
        )
        settings.services_file.write_text(where.model_dump_json())
        # added last, so it goes first: no command finds services that are ending
        stack.callback(settings.services_file.unlink, missing_ok=True)
        try:
            yield Services(temporal, model, worker, logs)
        finally:
            ending()
            announce("stopping; workers finish the calls in flight (Ctrl-C: end them now)")


@dataclass(frozen=True)
class EphemeralServices:
    """Services that end with the command that started them."""

    client: Client
    journal: Journal
    worker: ChildProcess
    model_url: str | None
    """URL of the embedded model; None where it wasn't asked for."""

    async def during(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Do `work`; raises Unavailable with the workers' last words if they end meanwhile."""
        return await while_running(work, {"the workers": self.worker})


@asynccontextmanager
async def ephemeral_services(
    settings: Settings, *, with_model: bool, debug: bool = False
) -> AsyncIterator[EphemeralServices]:
    """Start services with the sizes, sandboxes and run settings of `settings`, in a folder that is removed at last.

    `debug`: one worker process, which calls environments' code itself, on this process's terminal.
    Raises InvalidInput for a Temporal binary that can't be had.
    """
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="clotho-")))
        journal = Journal(FilesystemStore(folder / "store"))
        temporal = TemporalServer(await temporal_binary(), folder / "temporal.log", ui_port=None)
        model = EmbeddedModelServer(folder / "model.log") if with_model else None
        stack.push_async_callback(temporal.stop)
        starts = [temporal.start()]
        if model is not None:
            stack.push_async_callback(model.stop)
            starts.append(model.start())
        await together(*starts)
        sandboxes = settings.sandbox.folder_of(journal.store_identity)
        # added before the worker: sandboxes are destroyed once nobody makes new ones
        stack.push_async_callback(destroy_sandboxes, settings, sandboxes)
        command = _worker_command(folder, temporal.address, debug)
        worker = ChildProcess(command, folder / "worker.log", on_terminal=debug)
        stack.push_async_callback(worker.stop, DRAIN_SECONDS)
        await worker.start()
        client = await Client.connect(temporal.address, data_converter=DATA_CONVERTER)
        yield EphemeralServices(client, journal, worker, f"{model.url}/v1" if model else None)


def _worker_command(folder: Path, address: str, debug: bool) -> list[str]:
    without = [word for name in ELSEWHERE for word in ("-u", name)]
    variables = [
        "TEMPORAL_CONFIG_FILE=/dev/null",
        "CLOTHO_TEMPORAL__NAMESPACE=default",
        "CLOTHO_METRICS__PORT=0",
        f"CLOTHO_WORKER__DEBUG={debug}",
    ]
    worker = application.unversioned_worker(str(folder / "store"), address)
    roles = ["--roles", ",".join(ROLES)] if debug else []
    return ["env", *without, *variables, *worker, *roles]


async def destroy_sandboxes(settings: Settings, root: Path) -> None:
    """Destroy the sandboxes of a rollout that was cut off, and their folder."""
    backend = open_backend(settings, root)
    for held in await backend.leases():
        await backend.destroy(held.lease)
    await backend.reap()
    await asyncio.to_thread(shutil.rmtree, root, ignore_errors=True)


async def while_running(
    work: Coroutine[Any, Any, Result], processes: Mapping[str, ChildProcess], *, show_log: bool = False
) -> Result:
    """Do `work`; raises Unavailable with the last words of a process that ends meanwhile."""
    task = asyncio.create_task(work)
    ends = {asyncio.create_task(process.wait()): name for name, process in processes.items()}
    try:
        done, _ = await asyncio.wait([task, *ends], return_when=asyncio.FIRST_COMPLETED)
        if task in done:
            return task.result()
        name = next(name for end, name in ends.items() if end in done)
        log = f" [{processes[name].log}]" if show_log else ""
        raise Unavailable(f"{name} ended: {processes[name].last_words}{log}")
    finally:
        for waiting in (task, *ends):
            waiting.cancel()
        await asyncio.wait([task, *ends])


async def tell_isolation(settings: Settings, announce: Announce) -> None:
    """Say what sandboxes of this machine lack. Runs without any are served, and other hosts may have theirs."""
    if settings.sandbox.backend != "local":
        return
    store = settings.store if "://" in settings.store else filesystem_identity(Path(settings.store))
    backend = own_backend(settings, settings.sandbox.folder_of(store))
    try:
        report = await backend.probe()
    except (ClothoError, OSError) as error:
        announce(f"sandboxes        none on this machine: {error}")
        return
    if not report.isolated:
        missing = "; ".join(report.missing)
        announce(f"sandboxes        it can't be proved that one here {missing}: {UNISOLATED}")


def check_space(folder: Path) -> None:
    """Raise InvalidInput if the disk is nearly full: Temporal's database would fail before it could say why."""
    free = shutil.disk_usage(folder).free
    if free < SPACE_BYTES:
        raise InvalidInput(
            f"{folder} is on a disk with {free >> 20} MiB left, and services need {SPACE_BYTES >> 20} MiB: "
            "free some space, or give another --store"
        )


@contextmanager
def exclusive(folder: Path) -> Iterator[Callable[[], None]]:
    """One set of services for a folder: two Temporal servers would break their common database.

    It yields a function that notes, for those who are refused from then on, that the services are ending.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = (folder / "services.lock").open("a+")  # "w" would wipe the note of those that hold it
    except OSError as error:
        raise InvalidInput(f"{folder} can't be written: {error.strerror}") from error
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.seek(0)
            if lock.read() == ENDING:
                raise InvalidInput(
                    f"services for {folder} are ending: wait until their `clotho dev` or `clotho demo` is gone, "
                    "or give another --store"
                ) from None
            raise InvalidInput(
                f"services for {folder} run already (`clotho dev` or `clotho demo`): use them with `clotho run`, "
                "or give another --store"
            ) from None
        lock.truncate(0)

        def ending() -> None:
            with suppress(OSError):  # a full disk must not keep services from ending
                lock.write(ENDING)
                lock.flush()

        yield ending


def services_run(folder: Path) -> bool:
    """Whether services of `folder` run, or are ending."""
    try:
        lock = (folder / "services.lock").open()
    except OSError:
        return False
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def await_ended(folder: Path) -> None:
    """Block until no services of `folder` are ending; those that run on aren't waited for."""
    try:
        lock = (folder / "services.lock").open()
    except OSError:
        return
    with lock:
        # services that run on hold the lock for as long as they please
        if lock.read() == ENDING:
            fcntl.flock(lock, fcntl.LOCK_SH)


async def together(*starts: Coroutine[Any, Any, None]) -> None:
    """Run all `starts` at the same time; the first error cancels the others."""
    tasks = [asyncio.create_task(start) for start in starts]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


async def drained(worker: ChildProcess, seconds: float, hurry: asyncio.Event) -> None:
    """Stop the workers, which may take `seconds`, or until there is a `hurry`."""
    stopping, hurried = asyncio.create_task(worker.stop(seconds)), asyncio.create_task(hurry.wait())
    await asyncio.wait([stopping, hurried], return_when=asyncio.FIRST_COMPLETED)
    if not stopping.done():
        # at a second signal, workers end at once
        worker.terminate()
    hurried.cancel()
    await stopping
