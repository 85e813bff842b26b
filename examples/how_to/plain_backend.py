"""A sandbox backend without isolation, for tests: a folder for each lease, the supervisor an ordinary process.

Commands can do to this host whatever its user can. It passes the conformance suite as far as that asks for no
isolation, and shows what a backend consists of.
"""

import asyncio
import fcntl
import hashlib
import platform
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from clotho.errors import InvalidInput, IsolationUnavailable, SandboxLost
from clotho.frozen_model import FrozenModel
from clotho.sandbox.backend import AGENT_HOME, WORKSPACE, Labels, LeaseRecord, SandboxSpec
from clotho.sandbox.checkpoints import Restore
from clotho.sandbox.exhaustion import Bounds, Evidence
from clotho.sandbox.isolation import IsolationReport
from clotho.sandbox.supervised import launch
from clotho.sandbox.supervised.control import ControlDirectory
from clotho.sandbox.supervised.files import delete_any, delete_written
from clotho.sandbox.supervised.instance import SupervisedSandbox
from clotho.sandbox.supervised.layout import Layout, resolve_alias
from clotho.sandbox.supervised.verifying import check_hidden, expanded, seal, stage_start
from clotho.sandbox.supervisor import supervisor_path
from clotho.sandbox.verification import AS_AGENT, HIDDEN_FILES, USUAL, VerifierSetup

FOLDERS = {WORKSPACE: "work", AGENT_HOME: "home", "/tmp": "tmp"}
GRACE_SECONDS = 120.0


class PlainRecord(FrozenModel):
    """The record of a sandbox beside its files."""

    lease: str
    labels: Labels | None
    spec: SandboxSpec
    restored: str | None
    """Digest of the checkpoint that it was made from."""


class PlainBackend:
    """Sandboxes below `root`; runs name it `examples.how_to.plain_backend:PlainBackend`."""

    def __init__(self, root: Path) -> None:
        self._root = root

    @property
    def names(self) -> tuple[str, ...]:
        return (f"{type(self).__module__}:{type(self).__qualname__}",)

    async def system(self, lease: str) -> str:
        return platform.platform()

    async def evidence(self, lease: str) -> frozenset[Evidence]:
        """None: commands can kill their supervisor, and nothing counts their memory."""
        return frozenset()

    async def create(
        self,
        lease: str,
        spec: SandboxSpec,
        labels: Labels | None = None,
        restore: Restore | None = None,
        private: Sequence[Path] = (),
    ) -> SupervisedSandbox:
        """`private`, paths that commands must not see, can't be kept from them here."""
        return await asyncio.to_thread(self._create, lease, spec, labels, restore)

    async def attach(self, lease: str, incarnation: str, labels: Labels | None = None) -> SupervisedSandbox:
        return await asyncio.to_thread(self._attach, lease, incarnation, labels)

    async def open_verifier(
        self,
        lease: str,
        epoch: int,
        hidden_files: Mapping[str, bytes],
        labels: Labels | None = None,
        setup: VerifierSetup = USUAL,
    ) -> SupervisedSandbox:
        return await asyncio.to_thread(self._open_verifier, lease, epoch, hidden_files, labels, setup)

    async def verify_in_place(
        self, lease: str, incarnation: str, labels: Labels | None = None, setup: VerifierSetup = USUAL
    ) -> SupervisedSandbox:
        raise InvalidInput("this backend has no verification beside the agent's processes")

    async def destroy(self, lease: str, labels: Labels | None = None) -> None:
        await asyncio.to_thread(self._destroy, lease, labels)

    async def renew(self, lease: str, seconds: float) -> None:
        for control in _living(self._folder(lease)) or [_agent(self._folder(lease))]:
            await asyncio.to_thread(control.renew, seconds)

    async def leases(self) -> Sequence[LeaseRecord]:
        return await asyncio.to_thread(self._leases)

    async def reap(self) -> Sequence[str]:
        return await asyncio.to_thread(self._reap)

    async def expired(self) -> Sequence[str]:
        return await asyncio.to_thread(lambda: [folder.name for folder in self._expired()])

    async def probe(self) -> IsolationReport:
        return IsolationReport(
            missing=("is apart from this host",),
            own_user=False,
            memory="unlimited",
            processes="user",
            processors="nice",
            disk="file size",
        )

    # ---- the same, blocking ----

    def _create(
        self, lease: str, spec: SandboxSpec, labels: Labels | None, restore: Restore | None
    ) -> SupervisedSandbox:
        if not spec.unsafe_local:
            raise IsolationUnavailable("this backend isolates nothing: allow that with --unsafe-local")
        if spec.writable_roots or spec.aliases or spec.mounts:
            raise InvalidInput("this backend has no further folders")
        folder, digest = self._folder(lease), restore.checkpoint.digest if restore else None
        with self._locked():
            found = _read(folder)
            if found and found.restored == digest and (incarnation := _agent(folder).incarnation()):
                _label(folder, labels)
                return _instance(_agent(folder), incarnation, _layout(folder))
            _end(folder)  # of one that died, was never finished, or was made from an older checkpoint
            for name in FOLDERS.values():
                (folder / name).mkdir(parents=True)
            _agent(folder).create()
            made = _start(folder, _agent(folder), spec, _variables(folder), _layout(folder))
            if restore is not None:
                made.restore(restore)
            record = PlainRecord(lease=lease, labels=labels, spec=spec, restored=digest)
            _write(folder, record)  # now it can be found: whole
            return made

    def _attach(self, lease: str, incarnation: str, labels: Labels | None) -> SupervisedSandbox:
        folder = self._folder(lease)
        with self._locked():
            if _read(folder) is None or _agent(folder).incarnation() != incarnation:
                raise SandboxLost(f"the sandbox of lease {lease} has ended")
            _label(folder, labels)
        return _instance(_agent(folder), incarnation, _layout(folder))

    def _open_verifier(
        self,
        lease: str,
        epoch: int,
        hidden_files: Mapping[str, bytes],
        labels: Labels | None,
        setup: VerifierSetup,
    ) -> SupervisedSandbox:
        folder = self._folder(lease)
        with self._locked():
            if (record := _read(folder)) is None:
                raise SandboxLost(f"no sandbox of lease {lease} on this host")
            _label(folder, labels)
            own = folder / f"epoch-{epoch:06}"
            layout = _layout(folder, hidden=own / "hidden")
            control = ControlDirectory(folder / "control" / own.name, None)
            if control.was_started():
                if (incarnation := control.incarnation()) is None:
                    raise SandboxLost(f"the verifier of lease {lease}, epoch {epoch}, has ended")
                return _instance(control, incarnation, layout)
            if any(path.name > own.name for path in (folder / "control").glob("epoch-*")):
                raise SandboxLost(f"verification of lease {lease} has gone on to a later epoch")
            _write_hidden(own / "hidden", hidden_files)
            (own / "tmp").mkdir(exist_ok=True)
            seal(_agent(folder))
            for other in (each for each in _living(folder) if each.path.name != "agent"):
                launch.end(other)
            control.create()
            variables = _verifier_variables(folder, own, setup)
            directory = resolve_alias(expanded(setup.directory, variables), layout.aliases)
            stage_start(setup, directory, layout.workspace, control, _agent(folder))
            return _start(folder, control, record.spec, variables, layout)

    def _destroy(self, lease: str, labels: Labels | None) -> None:
        folder = self._folder(lease)
        with self._locked():
            record = _read(folder)
            if labels is None or record is None or labels.same_namespace(record.labels):
                _end(folder)

    def _leases(self) -> Sequence[LeaseRecord]:
        with self._locked():
            return [
                LeaseRecord(lease=each.lease, labels=each.labels, expires=_agent(folder).deadline())
                for folder, each in self._records()
            ]

    def _reap(self) -> Sequence[str]:
        with self._locked():
            expired = self._expired()
            for folder in expired:
                _end(folder)
            return [folder.name for folder in expired]

    def _expired(self) -> list[Path]:
        late = time.time() - GRACE_SECONDS
        return [folder for folder, _ in self._records() if _agent(folder).deadline() < late]

    def _folder(self, lease: str) -> Path:
        return self._root / hashlib.sha256(lease.encode()).hexdigest()[:20]

    def _records(self) -> Iterator[tuple[Path, PlainRecord]]:
        for folder in self._root.glob("*/"):
            if (record := _read(folder)) is not None:
                yield folder, record

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """One process at a time makes, changes or ends sandboxes."""
        self._root.mkdir(parents=True, exist_ok=True)
        with (self._root / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield


def _agent(folder: Path) -> ControlDirectory:
    return ControlDirectory(folder / "control" / "agent", None)


def _living(folder: Path) -> list[ControlDirectory]:
    """The agent's instance and those of verifiers, as far as they are alive."""
    found = (ControlDirectory(path, None) for path in sorted((folder / "control").glob("*")))
    return [control for control in found if control.incarnation() is not None]


def _write_hidden(folder: Path, files: Mapping[str, bytes]) -> None:
    check_hidden(files)
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)


def _layout(folder: Path, hidden: Path | None = None) -> Layout:
    real = {path: str(folder / name) for path, name in FOLDERS.items()}
    aliases = {path: real[path] for path in (WORKSPACE, AGENT_HOME)}
    agents, seen = tuple(real.values()), None if hidden is None else str(hidden)
    work, home, tmp = agents
    return Layout(work, home, tmp, False, aliases, {}, agents, hidden is not None, seen)


def _variables(folder: Path) -> dict[str, str]:
    path = {"PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8"}
    return {**path, "HOME": str(folder / "home"), "TMPDIR": str(folder / "tmp")}


def _verifier_variables(folder: Path, own: Path, setup: VerifierSetup) -> dict[str, str]:
    agents = " ".join(f"{name}={value}" for name, value in _variables(folder).items())
    places = {HIDDEN_FILES: str(own / "hidden"), "TMPDIR": str(own / "tmp")}
    return {**_variables(folder), **setup.variables(), AS_AGENT: f"env -i {agents}", **places}


def _start(
    folder: Path, control: ControlDirectory, spec: SandboxSpec, variables: Mapping[str, str], layout: Layout
) -> SupervisedSandbox:
    control.set_deadline(spec.lease_seconds)
    wanted = launch.Launch(
        command=[str(supervisor_path())],
        environment=variables,
        folder=folder / "work",
        log=folder / f"{control.path.name}.log",
        lease_seconds=spec.lease_seconds,
        max_processes=0,
        max_file_bytes=spec.disk_mb << 20,
        inherited=(),
    )
    _, incarnation = launch.start(wanted, control)
    return _instance(control, incarnation, layout)


def _instance(control: ControlDirectory, incarnation: str, layout: Layout) -> SupervisedSandbox:
    return SupervisedSandbox(control, incarnation, layout, Bounds((), 0, None))


def _end(folder: Path) -> None:
    for control in _living(folder):
        launch.end(control)
    (folder / "record.json").unlink(missing_ok=True)  # a folder without it is no sandbox
    delete_written(folder / "control")  # whoever waits for a command writes there how it ended
    delete_any(folder)


def _label(folder: Path, labels: Labels | None) -> None:
    if (record := _read(folder)) is None or labels in (None, record.labels):
        return
    owners = [(each.store, each.rollout) if each else None for each in (record.labels, labels)]
    if owners[0] != owners[1]:
        raise InvalidInput(f"lease {record.lease} is held by another store or rollout")
    _write(folder, record.model_copy(update={"labels": labels}))


def _read(folder: Path) -> PlainRecord | None:
    file = folder / "record.json"
    return PlainRecord.model_validate_json(file.read_text()) if file.exists() else None


def _write(folder: Path, record: PlainRecord) -> None:
    (folder / ".record.json").write_text(record.model_dump_json())
    (folder / ".record.json").rename(folder / "record.json")
