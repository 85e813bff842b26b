"""The file system view of a local sandbox: arguments for bubblewrap, and its approximation without it."""

import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path, PurePath

from clotho.sandbox.backend import AGENT_HOME, WORKSPACE, SandboxSpec
from clotho.sandbox.local.folders import SandboxFolder
from clotho.sandbox.local.start_files import StartFiles
from clotho.sandbox.supervised.layout import Layout, resolve_alias
from clotho.sandbox.supervised.placed_files import Mount, mounts
from clotho.sandbox.supervised.verifying import expanded
from clotho.sandbox.verification import AS_AGENT, HIDDEN_FILES, VerifierSetup

PROGRAM = "/.supervisor"
PROGRAMS = "/.programs"
SYSTEM_PATH = "/usr/bin:/bin:/usr/local/bin"
PATH = f"/usr/local/bin:/usr/bin:/bin:{PROGRAMS}"
SYSTEM_FILES = ("alternatives", "localtime", "ssl/certs", "ca-certificates")
"""Files of the host's /etc that sandboxes see, beside those that are copied."""
OF_THE_HOST = (
    *("acpi", "asound", "driver", "scsi"),
    *("cmdline", "config.gz", "diskstats", "interrupts", "kallsyms", "kcore", "key-users", "keys", "kmsg"),
    *("kpagecgroup", "kpagecount", "kpageflags", "latency_stats", "modules", "partitions", "sched_debug"),
    *("softirqs", "timer_list", "timer_stats"),
)
"""Entries of /proc that tell of the machine beneath: those that Docker masks, and their like."""
# Who can make user namespaces is root in them, with the kernel's code for mounts and networks in reach.
ONE_USER = ("--unshare-all", "--unshare-user", "--disable-userns")
SUPERVISORS_RIGHTS = (
    *("CAP_KILL", "CAP_SETUID", "CAP_SETGID", "CAP_CHOWN"),
    *("CAP_DAC_READ_SEARCH", "CAP_SETPCAP"),  # to begin in a closed workspace, and to give up these two
)
# no --unshare-user: bubblewrap maps a single user, so `supervisor enter` makes this namespace beforehand
TWO_USERS = (
    *("--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts", "--unshare-cgroup-try"),
    *("--cap-drop", "ALL", *(part for each in SUPERVISORS_RIGHTS for part in ("--cap-add", each))),
)
# a tmpfs without a size may take half of the machine's memory
SHARED_MEMORY, VAR_TMP, RUN, VERIFIER_TMP = 64 << 20, 256 << 20, 64 << 20, 512 << 20


@dataclass(frozen=True)
class View:
    """The view of one instance of a sandbox; `private` and `setup` are set for a verifier's."""

    folder: SandboxFolder
    spec: SandboxSpec
    private: Path | None = None
    """Its own folder: hidden files, and room for temporary ones where there is no isolated view."""
    setup: VerifierSetup | None = None

    def agents_environment(self) -> dict[str, str]:
        """The variables of the agent's commands, to which jobs add their own."""
        return {
            "PATH": PATH,
            "LANG": "C.UTF-8",
            "SHELL": "/bin/bash",
            "USER": "agent",
            "LOGNAME": "agent",
            "HOME": AGENT_HOME,
            **self.spec.variables,
        }

    def environment(self, isolated: bool = True) -> dict[str, str]:
        """The variables of every command of this instance."""
        variables = self.agents_environment()
        if not isolated:
            variables = {
                **_resolve_aliases(variables, self.bare_aliases()),
                "PATH": PATH.replace(PROGRAMS, str(self.folder.programs)),
                "TMPDIR": str(self.folder.tmp),
            }
        if self.setup is None:
            return variables
        # the shell splits the prefix at white space and expands patterns in it: such values are left out
        plain = {name: value for name, value in variables.items() if not set(value) & set(" \t\n*?[")}
        prefix = " ".join(f"{name}={value}" for name, value in plain.items())
        variables = {**variables, **self.setup.variables(), AS_AGENT: f"env -i {prefix}"}
        if (hidden := self.hidden_files(isolated)) is None:
            return variables
        temporary = f"{self._seen_private(isolated)}/tmp"
        own = {HIDDEN_FILES: hidden, "TMPDIR": temporary, "XDG_CONFIG_HOME": f"{temporary}/config"}
        return {**variables, **own}

    def hidden_files(self, isolated: bool) -> str | None:
        """The folder of the hidden files, as commands see it."""
        return None if self.private is None else f"{self._seen_private(isolated)}/hidden"

    def _seen_private(self, isolated: bool) -> str:
        assert self.private is not None
        return f"/.{self.private.name}" if isolated else str(self.private)

    def mounts(self) -> dict[str, Path]:
        """Writable folders of the host, keyed by every path at which commands see them."""
        writable = self.folder.writable(self.spec)
        return {**writable, **{path: writable[meant] for path, meant in self.spec.aliases.items()}}

    def placed(self) -> Iterator[Mount]:
        """Mounts of the hidden files that have paths of their own; the commands' user owns new folders for them."""
        assert self.private is not None
        owner = (self.private / "tmp").stat()
        yield from mounts(
            self.private,
            self.folder.writable(self.spec),
            lambda path: os.chown(path, owner.st_uid, owner.st_gid),
        )

    def _private_mounts(self) -> Iterator[str]:
        if self.private is not None:
            seen = self._seen_private(isolated=True)
            yield from ("--dir", seen, "--ro-bind", str(self.private / "hidden"), f"{seen}/hidden")
            # in memory: the agent may have filled the sandbox's disk
            yield from ("--size", str(VERIFIER_TMP), "--perms", "1777", "--tmpfs", f"{seen}/tmp")
            for each in self.placed():
                yield from ("--ro-bind" if each.read_only else "--bind", str(each.source), each.seen)

    def layout(self, isolated: bool, verifying: bool = False) -> Layout:
        """`verifying` also for the agent's own instance, where verification runs in it."""
        verifying |= self.private is not None
        hidden = self.hidden_files(isolated)
        if isolated:
            agents = tuple(self.mounts())
            return Layout(WORKSPACE, AGENT_HOME, "/tmp", True, {}, self._roots({}), agents, verifying, hidden)
        aliases = self.bare_aliases()
        return Layout(
            aliases[WORKSPACE],
            aliases[AGENT_HOME],
            str(self.folder.tmp),
            False,
            aliases,
            self._roots(aliases),
            tuple(map(str, self.mounts().values())),
            verifying,
            hidden,
            bare=True,
        )

    def _roots(self, aliases: Mapping[str, str]) -> dict[str, str]:
        """The writable roots, by labels that are theirs in every archive of the run."""
        return {f"root{at}": resolve_alias(path, aliases) for at, path in enumerate(self.spec.writable_roots)}

    def bare_aliases(self) -> dict[str, str]:
        """Folders of the host that stand for paths of the isolated view, where there is no such view."""
        return {seen: str(path) for seen, path in self.mounts().items() if seen != "/tmp"}

    def directory(self, isolated: bool) -> str:
        """The directory of the verifier's first command, unless the agent's shell has left another one."""
        assert self.setup is not None
        wanted = expanded(self.setup.directory, self.environment(isolated))
        return wanted if isolated else resolve_alias(wanted, self.bare_aliases())

    def arguments(
        self, files: StartFiles, empty: Path, nothing: Path, expose_usr_local: bool, two_users: bool
    ) -> list[str]:
        """bubblewrap's arguments before the command.

        `empty` and `nothing` are a folder and a file to mount over what shall not be seen. Each mount takes
        bubblewrap 0.1 to 0.2 ms, and more on a host that has many. With `two_users` there is a user namespace
        already, and its root keeps what it needs for ending commands and becoming their user.
        """
        return [
            *(TWO_USERS if two_users else ONE_USER),
            # PID 1 can't be killed or stopped from inside, and the kernel ends the sandbox with it. Without a
            # session of its own, a command could type into the terminal that the worker was started from.
            *("--as-pid-1", "--new-session"),
            *("--hostname", "sandbox", "--seccomp", str(files.seccomp)),
            *_variables(self.environment()),
            *_system(None if expose_usr_local else empty),
            *_parents((*self.mounts(), *self.spec.mounts)),
            *_copied({f"/etc/{name}": (0o444, file) for name, file in files.etc.items()}),
            *_kernel(empty, nothing),
            *_memory(),
            *_each("--bind", self.mounts()),
            *_each("--ro-bind", self.spec.mounts),
            *self._private_mounts(),
            *_programs(),
            *_copied({PROGRAM: (0o555, files.program)}),
            # The root is a tmpfs of bubblewrap's: writable, it would be memory that no bound of the disk
            # counts.
            *("--remount-ro", "/", "--chdir", WORKSPACE),
        ]


def _resolve_aliases(variables: Mapping[str, str], aliases: Mapping[str, str]) -> dict[str, str]:
    return {name: resolve_alias(value, aliases) for name, value in variables.items()}


def _variables(variables: Mapping[str, str]) -> Iterator[str]:
    yield "--clearenv"
    for name, value in variables.items():
        yield from ("--setenv", name, value)


def _each(kind: str, mounts: Mapping[str, Path] | Mapping[str, str]) -> Iterator[str]:
    for seen, path in mounts.items():
        yield from (kind, str(path), seen)


def _parents(paths: Iterable[str]) -> Iterator[str]:
    """The folders above `paths`, named one by one: bubblewrap would make them for its own user alone."""
    on_the_way = dict.fromkeys(str(each) for path in paths for each in reversed(PurePath(path).parents[:-1]))
    for folder in on_the_way:
        yield from ("--dir", folder)


def _system(over_usr_local: Path | None) -> Iterator[str]:
    yield from ("--ro-bind", "/usr", "/usr", "--dir", "/etc")
    if over_usr_local is not None:
        yield from ("--ro-bind", str(over_usr_local), "/usr/local")
    yield from _beside_usr()


@cache
def _beside_usr() -> tuple[str, ...]:
    return tuple(_links_and_folders())


def _links_and_folders() -> Iterator[str]:
    for name in ("bin", "sbin", "lib", "lib32", "lib64", "libx32"):
        path = Path("/", name)
        if path.is_symlink():
            yield from ("--symlink", str(path.readlink()), str(path))
        elif path.is_dir():
            yield from ("--ro-bind", str(path), str(path))
    for path in system_files():
        if path.is_symlink() and path.resolve().is_relative_to("/usr"):
            yield from ("--symlink", str(path.readlink()), str(path))
        else:
            # bubblewrap mounts what a link leads to: in the view the link itself would lead nowhere
            yield from ("--ro-bind-try", str(path), str(path))


def system_files() -> list[Path]:
    return [Path("/etc", name) for name in SYSTEM_FILES]


def _copied(files: Mapping[str, tuple[int, int]]) -> Iterator[str]:
    """Arguments that write a descriptor's content to each path; the root is made read-only after them."""
    for path, (mode, descriptor) in files.items():
        yield from ("--perms", f"{mode:04o}", "--file", str(descriptor), path)


def _programs() -> Iterator[str]:
    yield from ("--dir", PROGRAMS)
    for name, path in other_names().items():
        yield from ("--symlink", path, f"{PROGRAMS}/{name}")


@cache
def other_names() -> dict[str, str]:
    """Names for programs that this host has under other ones: commands look for these last."""
    program = shutil.which("python3", path=SYSTEM_PATH)
    return {} if program is None else {"python": program}


def _kernel(empty: Path, nothing: Path) -> Iterator[str]:
    yield from ("--proc", "/proc")
    for path, is_folder in _told_of_the_host():
        yield from ("--ro-bind", str(empty if is_folder else nothing), path)


@cache
def _told_of_the_host() -> tuple[tuple[str, bool], ...]:
    """The entries of OF_THE_HOST that anybody could read, and whether each is a folder."""
    paths = (Path("/proc", name) for name in OF_THE_HOST)
    # the others need no mask, and each mount makes every start slower
    readable = (path for path in paths if path.exists() and path.stat().st_mode & 0o004)
    return tuple((str(path), path.is_dir()) for path in readable)


def _memory() -> Iterator[str]:
    yield from ("--dev", "/dev")
    for size, path in ((SHARED_MEMORY, "/dev/shm"), (VAR_TMP, "/var/tmp"), (RUN, "/run")):
        yield from ("--size", str(size), "--perms", "1777", "--tmpfs", path)
    yield from ("--remount-ro", "/dev")  # else its tmpfs is as large as half the machine's memory


def account_files(user: int) -> dict[str, str]:
    """The /etc files by which programs know the sandbox's user."""
    return {
        "passwd": f"root:x:0:0:root:/root:/bin/bash\nagent:x:{user}:{user}:agent:{AGENT_HOME}:/bin/bash\n"
        "nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n",
        "group": f"root:x:0:\nagent:x:{user}:\nnogroup:x:65534:\n",
        "hosts": "127.0.0.1 localhost sandbox\n::1 localhost\n",
        "nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\n",
    }
