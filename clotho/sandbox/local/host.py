"""Resources of local sandboxes on their host: users, disks, control groups, and supervisors in an isolated view.

Everything blocks, and is called with the sandbox's folder locked.
"""

import math
import os
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from functools import cached_property
from pathlib import Path

from clotho.errors import InvalidInput, IsolationUnavailable, SandboxUnavailable
from clotho.sandbox.backend import Labels, SandboxSpec
from clotho.sandbox.exhaustion import Bounds
from clotho.sandbox.isolation import IsolationReport
from clotho.sandbox.local import cgroups, disk
from clotho.sandbox.local.apart import Apart
from clotho.sandbox.local.bubblewrap import PROGRAM, View, account_files, system_files
from clotho.sandbox.local.budget import DiskBudget
from clotho.sandbox.local.enter import entering
from clotho.sandbox.local.folders import SandboxFolder, SandboxRecord
from clotho.sandbox.local.isolation import failed_checks, has_landlock
from clotho.sandbox.local.own_folders import delete_own, link_programs, make_enterable, make_owned
from clotho.sandbox.local.processes import end_processes_of
from clotho.sandbox.local.roots import EMPTY_FILE, EMPTY_FOLDER, PASSABLE
from clotho.sandbox.local.start_files import StartFiles, start_files
from clotho.sandbox.local.users import UserRegistry, supervisor_of
from clotho.sandbox.supervised import launch, placed_files
from clotho.sandbox.supervised.control import ControlDirectory
from clotho.sandbox.supervised.files import delete_any, delete_written
from clotho.sandbox.supervisor import supervisor_path

PROBE_AGAIN_SECONDS = 60.0
# nothing of the worker's own environment, which holds keys, reaches a process of a sandbox
LAUNCH_ENVIRONMENT = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}
NICENESS = 5
"""Niceness of sandboxes where no control group shares out the processors."""


class LocalHost:
    """`isolator` is the path of the program that makes views, None where it isn't installed."""

    isolator_name = "bubblewrap"

    def __init__(
        self, root: Path, users: UserRegistry, isolator: str | None, disk_budget_mb: int | None = None
    ) -> None:
        self._root = root
        self._disks = DiskBudget(root.parent, disk_budget_mb)
        self._users = users
        self._isolator = isolator
        self._privileged = os.geteuid() == 0
        self._probing = threading.Lock()
        self._report: IsolationReport | None = None
        self._report_until = 0.0
        self._children: list[subprocess.Popen[bytes]] = []
        programs = (Path(path) for path in (isolator, supervisor_path()) if path is not None)
        self._apart = Apart((root / PASSABLE[0], *programs, *system_files()))

    # ---- what it can enforce ----

    @cached_property
    def _controllers(self) -> tuple[cgroups.Controller, ...]:
        return cgroups.usable()

    def report(self) -> IsolationReport:
        """Isolation and bounds of this host; an incomplete report is probed again, since a full disk may be why."""
        with self._probing:
            if self._report is None or time.monotonic() > self._report_until:
                self._report = self._probe()
                whole = self._report.isolated and not self._report.unlimited
                self._report_until = math.inf if whole else time.monotonic() + PROBE_AGAIN_SECONDS
            return self._report

    def _probe(self) -> IsolationReport:
        with self._probe_folder() as folder:
            bounded = disk.usable(folder.image, folder.disk)
            return IsolationReport(
                missing=self._failed_checks(folder),
                own_user=self._privileged,
                memory="cgroup" if self._controllers else "unlimited",
                processes="cgroup" if self._controllers else "user",
                processors="cgroup" if cgroups.shares_processors(self._controllers) else "nice",
                disk="disk" if bounded else "file size",
                landlock=self._privileged and has_landlock(),
            )

    @contextmanager
    def _probe_folder(self) -> Iterator[SandboxFolder]:
        """The folder of a sandbox that is never finished: if this process dies meanwhile, another one reaps it."""
        folder = SandboxFolder(self._root, f"probe-{os.getpid()}-{time.monotonic_ns()}")
        # a folder without a record is reaped by whoever gets its lock
        with folder.locked():
            folder.files.mkdir(mode=0o700)
            folder.disk.mkdir()
            try:
                yield folder
            finally:
                self._remove(folder)

    def _failed_checks(self, folder: SandboxFolder) -> tuple[str, ...]:
        if self._isolator is None:
            return (f"starts at all: {self.isolator_name} isn't installed",)
        try:
            view = self._probed(folder)
            with self._in_view(view) as (command, descriptors):
                return failed_checks(command, descriptors, self._environment(view, isolated=True))
        except (IsolationUnavailable, SandboxUnavailable) as error:
            return (f"starts at all: {error}",)

    def _probed(self, folder: SandboxFolder) -> View:
        return View(folder, SandboxSpec())

    @contextmanager
    def _in_view(self, view: View) -> Iterator[tuple[list[str], list[int]]]:
        """Yield a prefix that runs a command in the view as the sandbox's user, and the descriptors for it."""
        user = self._claim_user(view.folder)
        self._fill(view.folder, user, view.spec)
        with self._files_of_start(user) as files:
            enter = entering(user, None if user is None else supervisor_of(user))
            yield (
                # In the view the supervisor's program has another path, and takes the same arguments.
                [*enter, *self._isolated(view, files, user is not None), *entering(user)[1:]],
                files.descriptors(),
            )

    def _require(self, spec: SandboxSpec) -> bool:
        """Whether a sandbox of `spec` is isolated. Raises IsolationUnavailable where it must be and can't."""
        report = self.report()
        spec.require(report)
        return report.isolated

    def require_private(self, paths: Sequence[Path], spec: SandboxSpec) -> None:
        """Raises IsolationUnavailable where an isolated sandbox would see one of `paths`."""
        if not self.report().isolated:
            return
        seen = [path for path in (Path("/usr"), Path("/lib"), Path("/bin")) if path.is_dir()]
        seen += [Path(folder).resolve() for folder in spec.mounts.values()]
        for private in paths:
            target = private.resolve()
            masked = target.is_relative_to("/usr/local") and not spec.expose_usr_local
            if not masked and any(target.is_relative_to(path) for path in seen):
                raise IsolationUnavailable(f"sandboxes would see {private}: install it elsewhere")

    # ---- one sandbox ----

    def make(
        self, folder: SandboxFolder, lease: str, spec: SandboxSpec, labels: Labels | None
    ) -> SandboxRecord:
        """Make all of a sandbox but its supervisor; returns the record to write. Raises IsolationUnavailable."""
        isolated = self._require(spec)
        self._require_mounts(spec, isolated)
        folder.files.mkdir(mode=0o700)
        folder.controls.mkdir(mode=0o700)
        user = self._claim_user(folder) if isolated else None
        bounded = self.report().disk == "disk"
        if bounded:
            folder.disk.mkdir()
            with self._disks.taken(self._root, 2 * spec.disk_mb):
                disk.allot(folder.image, spec.disk_mb)
                disk.allot(folder.control_image, spec.disk_mb)
            # Outside of the budget's lock, under which the images were only promised: file systems are made
            # side by side.
            disk.make_in(folder.image, folder.disk, reserved=True)
            disk.make_in(folder.control_image, folder.controls)
        self._fill(folder, user, spec)
        if not isolated:
            link_programs(folder.programs)
        return SandboxRecord(
            lease=lease,
            labels=labels,
            spec=spec,
            user=user,
            supervisor=None if user is None else supervisor_of(user),
            isolated=isolated,
            disk_image=bounded,
        )

    def _require_mounts(self, spec: SandboxSpec, isolated: bool) -> None:
        """Raises InvalidInput for a folder of the host that commands couldn't see where they should."""
        spec.require_mounts_here()
        for seen, source in spec.mounts.items():
            if not isolated and seen != source:
                raise InvalidInput(f"mounts: {seen}: there is no such path without isolation")
            # a sandbox's user owns none of these folders and is in no group: only the bits for others count
            way = (Path(source).resolve(), *Path(source).resolve().parents)
            if self._privileged and (closed := [each for each in way if not each.stat().st_mode & 0o001]):
                raise InvalidInput(f"mounts: the users of sandboxes can't pass through {closed[-1]}")

    def reserve(self, folder: SandboxFolder, record: SandboxRecord) -> None:
        """Keep room on the sandbox's disk for its verifier, once the files that it begins with are there."""
        if record.disk_image:
            disk.reserve(folder.reserve, record.spec.disk_mb)

    def mount(self, folder: SandboxFolder, record: SandboxRecord) -> None:
        if record.disk_image:
            disk.mount(folder.image, folder.disk)
            disk.mount(folder.control_image, folder.controls)

    def start(self, view: View, record: SandboxRecord, control: ControlDirectory) -> str:
        """Start a supervisor over the sandbox's files; returns its incarnation."""
        folder = view.folder
        spec = record.spec
        groups = cgroups.make(self._controllers, folder.control_group, spec.memory_mb, spec.max_processes)
        with ExitStack() as stack:
            files = stack.enter_context(self._files_of_start(record.user))
            wanted = launch.Launch(
                command=self._command(view, record, files, groups),
                environment=self._environment(view, isolated=record.isolated),
                folder=Path("/") if record.isolated else folder.workspace,
                log=folder.files / f"{control.path.name}.log",
                lease_seconds=spec.lease_seconds,
                # the kernel counts a user's processes: without isolation, the worker's own would count, too
                max_processes=spec.max_processes if record.isolated else 0,
                max_file_bytes=spec.disk_mb << 20,
                inherited=files.descriptors(),
            )
            if record.isolated and record.disk_image:
                call = stack.enter_context(self._with_disk(folder, spec))
                process, incarnation = launch.start(wanted, control, call)
            else:
                process, incarnation = launch.start(wanted, control)
        # kept to be polled: a zombie still counts as a process of the sandbox's user
        self._children = [*self._children, process]
        return incarnation

    def bounds(self, folder: SandboxFolder, record: SandboxRecord) -> Bounds:
        groups = cgroups.paths(cgroups.counting(self._controllers), folder.control_group)
        return Bounds(groups, record.spec.max_processes, folder.disk if record.disk_image else None)

    def end(self, folder: SandboxFolder) -> None:
        """End every instance, and take back what the sandbox was given. Nothing is left of it."""
        if not self._is_there(folder):
            return
        # a worker with mounts of its own finds no supervisor's lock before the disk is mounted for it
        if folder.control_image.exists():
            with suppress(SandboxUnavailable):  # a damaged one: its processes are found by group and user
                disk.mount(folder.control_image, folder.controls)
        for path in folder.control_directories():
            launch.end(ControlDirectory(path, None))
        cgroups.end(self._controllers, folder.control_group)
        self._wait_for_ended()
        self._remove(folder)
        self._wait_for_ended()

    def _wait_for_ended(self) -> None:
        """Collect ended children, so that the kernel no longer counts them as processes of their users."""
        self._children = [child for child in self._children if child.poll() is None]

    def _is_there(self, folder: SandboxFolder) -> bool:
        """Whether there is anything of a sandbox. Its user's claim lasts as long as its folder."""
        groups = cgroups.paths(self._controllers, folder.control_group)
        return any(path.exists() for path in (folder.files, folder.controls, *groups))

    def make_verifier(
        self, folder: SandboxFolder, record: SandboxRecord, epoch: int, hidden_files: Mapping[str, bytes]
    ) -> Path:
        """Make the private folder of an epoch's verifier, under an unguessable name."""
        for left in folder.all_private():  # of earlier epochs, and of an attempt that never started this one
            shutil.rmtree(left)
        hidden, placed = placed_files.split(hidden_files)
        if placed and not record.isolated:
            raise InvalidInput(f"hidden file {next(iter(placed))}: there is no such path without isolation")
        roots = placed_files.roots_of(placed, record.spec.writable_roots)
        # first: on a full disk the roots below couldn't be made anew
        self.make_room(folder, record)
        private = folder.draw_private(epoch)
        # The commands' user passes through, to the names that it is told; it can't list them.
        private.mkdir(mode=0o711)
        make_owned(private / "tmp", record.user)
        (private / "hidden").mkdir()
        placed_files.write(private / "hidden", hidden)
        placed_files.write(private / placed_files.PLACED, placed)
        writable = folder.writable(record.spec)
        for root in roots:
            delete_any(writable[root])
            make_owned(writable[root], record.user)
        return private

    def make_room(self, folder: SandboxFolder, record: SandboxRecord) -> None:
        """Let a verifier enter the agent's folders, whatever the agent did to them, and free room on their disk."""
        # it is gone where another epoch was given it before
        shutil.rmtree(folder.reserve, ignore_errors=True)
        for own in folder.writable(record.spec).values():
            make_enterable(own, record.user)

    def _remove(self, folder: SandboxFolder) -> None:
        record = folder.readable_record()
        likely = record.user if record else None
        user = self._users.held_by(folder.files, likely) if self._privileged else None
        if user is not None:
            end_processes_of(user)
            end_processes_of(supervisor_of(user))
        delete = delete_own if record and record.isolated and record.disk_image else delete_any
        # first: a worker that dies below leaves no sandbox, rather than one without its disk
        folder.remove_record()
        # a mount point can be neither renamed nor deleted
        disk.remove(folder.image, folder.disk)
        disk.remove(folder.control_image, folder.controls)
        delete_written(folder.controls)
        delete(folder.files)
        # last: the next sandbox with this user could enter what is still there
        if user is not None:
            self._users.release(user, folder.files)

    def _claim_user(self, folder: SandboxFolder) -> int | None:
        if not self._privileged:
            return None
        self._users.require_usable()
        return self._users.claim(folder.files)

    def _fill(self, folder: SandboxFolder, user: int | None, spec: SandboxSpec) -> None:
        """Make the writable folders. Only the sandbox's user and this process' may enter the folder around them."""
        if user is not None:
            # by its group the user passes through, and can neither list the folder nor change its mode
            os.chown(folder.files, -1, user)
            folder.files.chmod(0o710)
        for path in folder.writable(spec).values():
            make_owned(path, user)

    def _command(
        self, view: View, record: SandboxRecord, files: StartFiles, groups: Sequence[Path]
    ) -> list[str]:
        niceness = 0 if self.report().processors == "cgroup" else NICENESS
        enter = entering(record.user, record.supervisor, niceness, groups)
        if not record.isolated:
            return [*enter, str(supervisor_path())]
        served = () if record.supervisor is None else ("for", str(record.user))
        return [*enter, *self._isolated(view, files, record.supervisor is not None), *served]

    def _isolated(self, view: View, files: StartFiles, two_users: bool) -> list[str]:
        """The command that runs the supervisor's program in the sandbox's view; the caller adds its arguments."""
        assert self._isolator is not None
        empty = (self._root / EMPTY_FOLDER, self._root / EMPTY_FILE)
        arguments = view.arguments(files, *empty, view.spec.expose_usr_local, two_users)
        return [self._isolator, *arguments, "--", PROGRAM]

    def _environment(self, view: View, *, isolated: bool) -> Mapping[str, str]:
        """The variables of the program that makes the view, or, without one, of the sandbox."""
        return LAUNCH_ENVIRONMENT if isolated else view.environment(isolated=False)

    def _with_disk(self, folder: SandboxFolder, spec: SandboxSpec) -> AbstractContextManager[launch.Call]:
        return self._apart.with_mount(folder.disk, tuple(map(Path, spec.mounts.values())))

    @cached_property
    def _program(self) -> bytes:
        """The supervisor's program, read once: a later installation doesn't change what this process starts."""
        return supervisor_path().read_bytes()

    def _files_of_start(self, user: int | None) -> AbstractContextManager[StartFiles]:
        return start_files(self._program, account_files(os.geteuid() if user is None else user))
