"""Sandboxes on this host: bubblewrap around a supervisor, found again by lease, from files alone.

A sandbox outlives the worker that made it. Whether it lives is told by the lock its supervisor holds, never by a
process id. Making and ending one is serialised by a lock on its folder, across processes.
"""

import asyncio
import fcntl
import os
import shutil
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from clotho.errors import IsolationUnavailable, SandboxLost
from clotho.sandbox import launch
from clotho.sandbox.base import AGENT_HOME, WORKSPACE, SandboxSpec
from clotho.sandbox.bubblewrap import VerifierView, View, account_files, as_user
from clotho.sandbox.control import ControlDirectory
from clotho.sandbox.folders import SandboxFolder, SandboxRecord
from clotho.sandbox.jobs import SupervisedSandbox
from clotho.sandbox.seccomp import program
from clotho.sandbox.supervisor import supervisor_path
from clotho.sandbox.users import RANGE, UserRegistry

REGISTRY = Path("/run/clotho/users")


class LocalBackend:
    """`root` must be a folder that any user of the host may pass through, on a disk of this host."""

    def __init__(
        self,
        root: Path,
        *,
        registry: Path = REGISTRY,
        users: range = RANGE,
        bubblewrap: str = "bwrap",
    ) -> None:
        self._root = root.absolute()
        self._users = UserRegistry(registry, users)
        self._bubblewrap = shutil.which(bubblewrap)
        self._privileged = os.geteuid() == 0
        self._children: list[subprocess.Popen[bytes]] = []

    # ---- SandboxBackend ----

    async def create(self, lease: str, spec: SandboxSpec) -> SupervisedSandbox:
        return await asyncio.to_thread(self._create, lease, spec)

    async def attach(self, lease: str, incarnation: str) -> SupervisedSandbox:
        return await asyncio.to_thread(self._attach, lease, incarnation)

    async def destroy(self, lease: str) -> None:
        await asyncio.to_thread(self._destroy, self._folder(lease))

    async def renew(self, lease: str, seconds: float) -> None:
        await asyncio.to_thread(self._renew, lease, seconds)

    async def leases(self) -> Sequence[str]:
        return await asyncio.to_thread(self._leases)

    # ---- the same, blocking ----

    def _create(self, lease: str, spec: SandboxSpec) -> SupervisedSandbox:
        self._prepare_root()
        folder = self._folder(lease)
        with _locked(folder.lock):
            record = folder.read_record()
            if record is not None:
                control = self._control(folder, record)
                incarnation = control.incarnation()
                if incarnation is not None:
                    return self._instance(folder, record, control, incarnation)
            self._clear(folder)
            record = self._make(folder, lease, spec)
            control = self._control(folder, record)
            incarnation = self._start(folder, record, control, None)
            return self._instance(folder, record, control, incarnation)

    def _attach(self, lease: str, incarnation: str) -> SupervisedSandbox:
        folder = self._folder(lease)
        record = folder.read_record()
        if record is None:
            raise SandboxLost(f"no sandbox of lease {lease} on this host")
        control = self._control(folder, record)
        if control.incarnation() != incarnation:
            raise SandboxLost(f"the sandbox of lease {lease} has ended")
        return self._instance(folder, record, control, incarnation)

    def _destroy(self, folder: SandboxFolder) -> None:
        self._prepare_root()
        with _locked(folder.lock):
            self._clear(folder)

    def _renew(self, lease: str, seconds: float) -> None:
        folder = self._folder(lease)
        record = folder.read_record()
        if record is None:
            raise SandboxLost(f"no sandbox of lease {lease} on this host")
        _set_deadline(folder, seconds)
        self._control(folder, record).say("lease", str(max(1, round(seconds))))

    def _leases(self) -> Sequence[str]:
        folders = (SandboxFolder(self._root, path.name) for path in self._root.glob("sandboxes/*"))
        records = (folder.read_record() for folder in folders)
        return tuple(record.lease for record in records if record is not None)

    # ---- making and ending ----

    def _prepare_root(self) -> None:
        for name in ("sandboxes", "control", "locks", "programs", "empty"):
            (self._root / name).mkdir(parents=True, exist_ok=True)
            (self._root / name).chmod(0o711)
        self._root.chmod(0o711)

    def _make(self, folder: SandboxFolder, lease: str, spec: SandboxSpec) -> SandboxRecord:
        isolated = self._bubblewrap is not None
        if not isolated and not spec.unsafe_local:
            raise IsolationUnavailable("bubblewrap isn't installed")
        folder.files.mkdir(mode=0o711)
        folder.controls.mkdir(mode=0o711)
        user = self._users.claim(folder.files) if isolated and self._privileged else None
        record = SandboxRecord(lease=lease, spec=spec, user=user, isolated=isolated)
        for path in (folder.workspace, folder.home, folder.tmp):
            _make_owned(path, user)
        folder.etc.mkdir()
        for name, text in account_files(os.geteuid() if user is None else user).items():
            (folder.etc / name).write_text(text)
        self._control(folder, record).create()
        _set_deadline(folder, spec.lease_seconds)
        folder.write_record(record)
        return record

    def _start(
        self,
        folder: SandboxFolder,
        record: SandboxRecord,
        control: ControlDirectory,
        verifier: VerifierView | None,
    ) -> str:
        view = View(
            folder=folder,
            program=self._program(),
            empty=self._root / "empty",
            expose_usr_local=record.spec.expose_usr_local,
            verifier=verifier,
        )
        seccomp = os.memfd_create("seccomp")
        os.write(seccomp, program())
        os.lseek(seccomp, 0, os.SEEK_SET)
        assert self._bubblewrap is not None
        process, incarnation = launch.start(
            launch.Launch(
                prefix=[*as_user(record.user), self._bubblewrap, *view.arguments(seccomp), "--"],
                program="/.supervisor",
                environment={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"},
                folder=Path("/"),
                log=folder.files / f"{control.path.name}.log",
                control_groups=(),
                lease_seconds=record.spec.lease_seconds,
                max_processes=record.spec.max_processes,
                max_file_bytes=record.spec.disk_mb << 20,
                inherited=(seccomp,),
            ),
            control,
        )
        os.close(seccomp)
        self._children = [child for child in self._children if child.poll() is None] + [process]
        return incarnation

    def _clear(self, folder: SandboxFolder) -> None:
        for path in folder.controls.glob("*"):
            launch.end(ControlDirectory(path, None))
        record = folder.read_record()
        for path in (folder.controls, folder.files):
            subprocess.run(["rm", "-rf", "--one-file-system", str(path)], check=True)
        if record is not None and record.user is not None:
            self._users.release(record.user)

    def _program(self) -> Path:
        """A copy of the supervisor where every user may read it, kept apart from later versions."""
        source = supervisor_path()
        copy = self._root / "programs" / f"supervisor-{source.stat().st_mtime_ns}"
        if not copy.exists():
            unfinished = copy.with_name(f".{copy.name}.{os.getpid()}")
            shutil.copyfile(source, unfinished)
            unfinished.chmod(0o755)
            unfinished.rename(copy)
        return copy

    # ---- finding ----

    def _folder(self, lease: str) -> SandboxFolder:
        return SandboxFolder.of_lease(self._root, lease)

    def _control(self, folder: SandboxFolder, record: SandboxRecord) -> ControlDirectory:
        return ControlDirectory(folder.control(), record.user)

    def _instance(
        self, folder: SandboxFolder, record: SandboxRecord, control: ControlDirectory, incarnation: str
    ) -> SupervisedSandbox:
        return SupervisedSandbox(control, incarnation, WORKSPACE, AGENT_HOME, {})


def _make_owned(path: Path, user: int | None) -> None:
    path.mkdir(parents=True)
    path.chmod(0o755)
    if user is not None:
        os.chown(path, user, user)


def _set_deadline(folder: SandboxFolder, seconds: float) -> None:
    end = time.time() + seconds
    folder.deadline.touch()
    os.utime(folder.deadline, (end, end))


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
