"""What a host gives to its local sandboxes: users, disks, control groups, and supervisors in an isolated view.

Everything blocks, and is called with the sandbox's folder locked.
"""

import os
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path

from clotho.errors import IsolationUnavailable, SandboxUnavailable
from clotho.sandbox.base import Labels, SandboxSpec
from clotho.sandbox.exhaustion import Bounds
from clotho.sandbox.local import cgroups, disk, launch
from clotho.sandbox.local.bubblewrap import PROGRAM, View, account_files, as_user
from clotho.sandbox.local.folders import SandboxFolder, SandboxRecord
from clotho.sandbox.local.isolation import IsolationReport, failed_checks
from clotho.sandbox.local.processes import end_processes_of
from clotho.sandbox.local.seccomp import program
from clotho.sandbox.local.users import UserRegistry
from clotho.sandbox.supervised.control import ControlDirectory
from clotho.sandbox.supervisor import supervisor_path

LAUNCH_ENVIRONMENT = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}


class LocalHost:
    def __init__(self, root: Path, users: UserRegistry, bubblewrap: str | None) -> None:
        self._root = root
        self._users = users
        self._bubblewrap = bubblewrap
        self._privileged = os.geteuid() == 0
        self._probing = threading.Lock()
        self._report: IsolationReport | None = None
        self._children: list[subprocess.Popen[bytes]] = []

    # ---- what it can enforce ----

    @cached_property
    def _controllers(self) -> tuple[cgroups.Controller, ...]:
        return cgroups.usable()

    def report(self) -> IsolationReport:
        with self._probing:
            if self._report is None:
                self._report = self._probe()
            return self._report

    def _probe(self) -> IsolationReport:
        """In a sandbox that is never finished: should this process die meanwhile, another reaps it."""
        folder = SandboxFolder(self._root, f"probe-{os.getpid()}-{time.monotonic_ns()}")
        with folder.locked():
            folder.files.mkdir(mode=0o711)
            folder.disk.mkdir()
            try:
                bounded = disk.usable(folder.image, folder.disk)
                return IsolationReport(
                    missing=self._failed_checks(folder),
                    own_user=self._privileged,
                    memory="cgroup" if self._controllers else "unlimited",
                    processes="cgroup" if self._controllers else "user",
                    disk="disk" if bounded else "file size",
                )
            finally:
                self._remove(folder)

    def _failed_checks(self, folder: SandboxFolder) -> tuple[str, ...]:
        if self._bubblewrap is None:
            return ("starts at all: bubblewrap isn't installed",)
        try:
            user = self._claim_user(folder)
            self._fill(folder, user)
            with _seccomp_filter() as seccomp:
                return failed_checks(self._isolated(View(folder), user, SandboxSpec(), seccomp), (seccomp,))
        except (IsolationUnavailable, SandboxUnavailable) as error:
            return (f"starts at all: {error}",)

    def _require(self, spec: SandboxSpec) -> bool:
        """Whether a sandbox of `spec` is isolated. Raises IsolationUnavailable where it must be and can't."""
        report = self.report()
        if spec.limits == "required" and report.unlimited:
            raise IsolationUnavailable(
                f"this host can't bound {' and '.join(report.unlimited)} (limits: required)"
            )
        if not report.isolated and not spec.unsafe_local:
            raise IsolationUnavailable(f"it can't be proved that a sandbox here {'; '.join(report.missing)}")
        return report.isolated

    def require_private(self, paths: Sequence[Path], spec: SandboxSpec) -> None:
        """Raises IsolationUnavailable where an isolated sandbox would see one of `paths`."""
        if not self.report().isolated:
            return
        seen = [path for path in (Path("/usr"), Path("/lib"), Path("/bin")) if path.is_dir()]
        for private in paths:
            masked = private.is_relative_to("/usr/local") and not spec.expose_usr_local
            if not masked and any(private.resolve().is_relative_to(path) for path in seen):
                raise IsolationUnavailable(f"sandboxes would see {private}: install it elsewhere")

    # ---- one sandbox ----

    def make(
        self, folder: SandboxFolder, lease: str, spec: SandboxSpec, labels: Labels | None
    ) -> SandboxRecord:
        """A folder with everything but a supervisor and its record. Raises IsolationUnavailable."""
        isolated = self._require(spec)
        folder.files.mkdir(mode=0o711)
        folder.controls.mkdir(mode=0o711)
        user = self._claim_user(folder) if isolated else None
        bounded = self.report().disk == "disk"
        if bounded:
            folder.disk.mkdir()
            disk.make(folder.image, folder.disk, spec.disk_mb)
            disk.make(folder.control_image, folder.controls, spec.disk_mb)
        self._fill(folder, user)
        return SandboxRecord(
            lease=lease, labels=labels, spec=spec, user=user, isolated=isolated, disk_image=bounded
        )

    def mount(self, folder: SandboxFolder, record: SandboxRecord) -> None:
        if record.disk_image:
            disk.mount(folder.image, folder.disk)
            disk.mount(folder.control_image, folder.controls)

    def start(self, view: View, record: SandboxRecord, control: ControlDirectory) -> str:
        """Start a supervisor over the sandbox's files; returns its incarnation."""
        folder = view.folder
        spec = record.spec
        with _seccomp_filter() as seccomp:
            wanted = launch.Launch(
                command=self._command(view, record, seccomp),
                environment=LAUNCH_ENVIRONMENT if record.isolated else view.bare_environment(),
                folder=Path("/") if record.isolated else folder.workspace,
                log=folder.files / f"{control.path.name}.log",
                groups=cgroups.make(
                    self._controllers, folder.control_group, spec.memory_mb, spec.max_processes
                ),
                lease_seconds=spec.lease_seconds,
                max_processes=spec.max_processes if record.isolated else 0,
                max_file_bytes=spec.disk_mb << 20,
                inherited=(seccomp,),
            )
            process, incarnation = launch.start(wanted, control)
        self._children = [*(child for child in self._children if child.poll() is None), process]
        return incarnation

    def bounds(self, folder: SandboxFolder, record: SandboxRecord) -> Bounds:
        groups = cgroups.paths(self._controllers, folder.control_group)
        return Bounds(groups, record.spec.max_processes, folder.disk if record.disk_image else None)

    def end(self, folder: SandboxFolder) -> None:
        """End every instance, and take back what the sandbox was given. Nothing is left of it."""
        if folder.control_image.exists():
            with suppress(SandboxUnavailable):  # a damaged one: its processes are found by group and user
                disk.mount(folder.control_image, folder.controls)
        for path in folder.instances():
            launch.end(ControlDirectory(path, None))
        cgroups.end(self._controllers, folder.control_group)
        self._remove(folder)
        for child in self._children:
            child.poll()

    def end_verifiers(self, folder: SandboxFolder) -> None:
        """End superseded verifiers; one that was never started is removed, so that it can be started anew."""
        for path in folder.verifiers():
            control = ControlDirectory(path, None)
            launch.end(control)
            if not control.was_started():
                shutil.rmtree(path)

    def make_verifier(
        self, folder: SandboxFolder, record: SandboxRecord, epoch: int, hidden_files: Mapping[str, bytes]
    ) -> None:
        home, hidden = folder.verifier_home(epoch), folder.hidden_files(epoch)
        for left in (home, hidden):  # by an attempt that never started it
            shutil.rmtree(left, ignore_errors=True)
        for path in (home, home / "tmp"):
            _make_owned(path, record.user)
        hidden.mkdir()
        for name, content in hidden_files.items():
            file = hidden / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content)
            file.chmod(0o755)

    def _remove(self, folder: SandboxFolder) -> None:
        user = self._users.held_by(folder.files) if self._privileged else None
        if user is not None:
            end_processes_of(user)
        disk.remove(folder.image, folder.disk)
        disk.remove(folder.control_image, folder.controls)
        _delete(folder.controls)
        _delete(folder.files)
        if user is not None:
            self._users.release(user, folder.files)

    def _claim_user(self, folder: SandboxFolder) -> int | None:
        if not self._privileged:
            return None
        self._users.require_usable()
        return self._users.claim(folder.files)

    def _fill(self, folder: SandboxFolder, user: int | None) -> None:
        for path in (folder.workspace, folder.home, folder.tmp):
            _make_owned(path, user)
        folder.etc.mkdir()
        for name, text in account_files(os.geteuid() if user is None else user).items():
            (folder.etc / name).write_text(text)

    def _command(self, view: View, record: SandboxRecord, seccomp: int) -> list[str]:
        if record.isolated:
            return [*self._isolated(view, record.user, record.spec, seccomp), PROGRAM]
        return [str(self._program())]

    def _isolated(self, view: View, user: int | None, spec: SandboxSpec, seccomp: int) -> list[str]:
        assert self._bubblewrap is not None
        view_arguments = view.arguments(self._program(), self._root / "empty", spec.expose_usr_local, seccomp)
        return [*as_user(user), self._bubblewrap, *view_arguments, "--"]

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


def _delete(folder: Path) -> None:
    """By rm: folders can be nested deeper than Python follows."""
    result = subprocess.run(["rm", "-rf", "--one-file-system", str(folder)], capture_output=True, text=True)
    if result.returncode != 0:
        raise SandboxUnavailable(f"a sandbox can't be deleted: {result.stderr.strip()}")


def _make_owned(path: Path, user: int | None) -> None:
    path.mkdir(parents=True)
    path.chmod(0o755)
    if user is not None:
        os.chown(path, user, user)


@contextmanager
def _seccomp_filter() -> Iterator[int]:
    descriptor = os.memfd_create("seccomp")
    try:
        os.write(descriptor, program())
        os.lseek(descriptor, 0, os.SEEK_SET)
        yield descriptor
    finally:
        os.close(descriptor)
