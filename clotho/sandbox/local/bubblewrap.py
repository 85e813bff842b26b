"""What a local sandbox sees, as arguments for bubblewrap; and the same, as far as it goes, without it."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from clotho.sandbox.base import AGENT_HOME, HIDDEN_FILES, WORKSPACE
from clotho.sandbox.local.folders import SandboxFolder
from clotho.sandbox.supervised.layout import Layout, located

PROGRAM = "/.supervisor"
VERIFIER_HOME = "/home/verifier"
PATH = "/usr/local/bin:/usr/bin:/bin"
SYSTEM_FILES = (
    "alternatives",
    "ld.so.cache",
    "localtime",
    "mime.types",
    "magic",
    "ssl/certs",
    "ca-certificates",
)
SHARED_MEMORY, VAR_TMP, RUN = 64 << 20, 256 << 20, 64 << 20


@dataclass(frozen=True)
class View:
    """What one instance of a sandbox sees; `epoch` is set for a verifier's."""

    folder: SandboxFolder
    epoch: int | None = None

    def environment(self) -> dict[str, str]:
        """The variables of every command, to which jobs add their own."""
        common = {"PATH": PATH, "LANG": "C.UTF-8", "SHELL": "/bin/bash", "USER": "agent", "LOGNAME": "agent"}
        if self.epoch is None:
            return {**common, "HOME": AGENT_HOME}
        return {
            **common,
            "HOME": VERIFIER_HOME,
            "TMPDIR": f"{VERIFIER_HOME}/tmp",
            "PYTHONNOUSERSITE": "1",
            "CLOTHO_HIDDEN_FILES": HIDDEN_FILES,
        }

    def mounts(self) -> dict[str, Path]:
        """Paths that commands see, and what they are on the host."""
        own = {
            WORKSPACE: self.folder.workspace,
            AGENT_HOME: self.folder.home,
            "/tmp": self.folder.tmp,
        }
        if self.epoch is None:
            return own
        return {
            **own,
            VERIFIER_HOME: self.folder.verifier_home(self.epoch),
            HIDDEN_FILES: self.folder.hidden_files(self.epoch),
        }

    def layout(self, isolated: bool) -> Layout:
        if isolated:
            return Layout(WORKSPACE, AGENT_HOME, "/tmp", True, {})
        aliases = self.bare_aliases()
        return Layout(aliases[WORKSPACE], aliases[AGENT_HOME], str(self.folder.tmp), False, aliases)

    def bare_aliases(self) -> dict[str, str]:
        """Without isolation: the paths of the isolated view that stand for folders of the host."""
        return {seen: str(path) for seen, path in self.mounts().items() if seen != "/tmp"}

    def bare_environment(self) -> dict[str, str]:
        aliases = self.bare_aliases()
        variables = {"TMPDIR": str(self.folder.tmp), **self.environment()}
        return {name: located(value, aliases) for name, value in variables.items()}

    def arguments(self, program: Path, empty: Path, expose_usr_local: bool, seccomp: int) -> list[str]:
        """bubblewrap's arguments before the command.

        `empty` is a folder to mount over what shall not be seen, `seccomp` the descriptor of a filter.
        """
        return [
            *("--unshare-all", "--unshare-user", "--disable-userns", "--as-pid-1", "--new-session"),
            *("--hostname", "sandbox", "--seccomp", str(seccomp)),
            *_variables(self.environment()),
            *_system(None if expose_usr_local else empty),
            *_each("--ro-bind", {f"/etc/{path.name}": path for path in sorted(self.folder.etc.iterdir())}),
            *_memory(),
            *_each("--bind", {seen: path for seen, path in self.mounts().items() if seen != HIDDEN_FILES}),
            *_each("--ro-bind", {seen: path for seen, path in self.mounts().items() if seen == HIDDEN_FILES}),
            *("--ro-bind", str(program), PROGRAM),
            *("--remount-ro", "/", "--chdir", WORKSPACE),
        ]


def _variables(variables: Mapping[str, str]) -> Iterator[str]:
    yield "--clearenv"
    for name, value in variables.items():
        yield from ("--setenv", name, value)


def _each(kind: str, mounts: Mapping[str, Path]) -> Iterator[str]:
    for seen, path in mounts.items():
        yield from (kind, str(path), seen)


def _system(over_usr_local: Path | None) -> Iterator[str]:
    yield from ("--ro-bind", "/usr", "/usr")
    if over_usr_local is not None:
        yield from ("--ro-bind", str(over_usr_local), "/usr/local")
    for name in ("bin", "sbin", "lib", "lib32", "lib64", "libx32"):
        path = Path("/", name)
        if path.is_symlink():
            yield from ("--symlink", str(path.readlink()), str(path))
        elif path.is_dir():
            yield from ("--ro-bind", str(path), str(path))
    for name in SYSTEM_FILES:
        yield from ("--ro-bind-try", f"/etc/{name}", f"/etc/{name}")


def _memory() -> Iterator[str]:
    yield from ("--proc", "/proc", "--dev", "/dev")
    for size, path in ((SHARED_MEMORY, "/dev/shm"), (VAR_TMP, "/var/tmp"), (RUN, "/run")):
        yield from ("--size", str(size), "--perms", "1777", "--tmpfs", path)
    yield from ("--remount-ro", "/dev")  # else its tmpfs is as large as half the machine's memory


def as_user(user: int | None) -> list[str]:
    """The command prefix that gives up all rights but those of `user`, of whom no process else exists."""
    if user is None:
        return []
    return ["setpriv", "--reuid", str(user), "--regid", str(user), "--clear-groups", "--no-new-privs"]


def account_files(user: int) -> dict[str, str]:
    """The /etc files by which programs know the sandbox's user."""
    return {
        "passwd": f"root:x:0:0:root:/root:/bin/bash\nagent:x:{user}:{user}:agent:{AGENT_HOME}:/bin/bash\n"
        "nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n",
        "group": f"root:x:0:\nagent:x:{user}:\nnogroup:x:65534:\n",
        "hosts": "127.0.0.1 localhost sandbox\n::1 localhost\n",
        "nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\n",
    }
