"""The isolated view of a local sandbox, as arguments for bubblewrap."""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from clotho.sandbox.base import AGENT_HOME, HIDDEN_FILES, WORKSPACE
from clotho.sandbox.folders import SandboxFolder

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
class VerifierView:
    """What verification has for itself."""

    home: Path
    hidden: Path


@dataclass(frozen=True)
class View:
    """What one instance sees of the host."""

    folder: SandboxFolder
    program: Path
    empty: Path
    """A folder that is mounted over what shall not be seen."""
    expose_usr_local: bool
    verifier: VerifierView | None = None

    def environment(self) -> dict[str, str]:
        """The variables of every command, to which jobs add their own."""
        common = {"PATH": PATH, "LANG": "C.UTF-8", "SHELL": "/bin/bash", "USER": "agent", "LOGNAME": "agent"}
        if self.verifier is None:
            return {**common, "HOME": AGENT_HOME}
        return {
            **common,
            "HOME": VERIFIER_HOME,
            "TMPDIR": f"{VERIFIER_HOME}/tmp",
            "PYTHONNOUSERSITE": "1",
            "CLOTHO_HIDDEN_FILES": HIDDEN_FILES,
        }

    def arguments(self, seccomp: int) -> list[str]:
        """bubblewrap's arguments before the command; `seccomp` is the descriptor of a filter."""
        return [
            *("--unshare-all", "--unshare-user", "--disable-userns", "--as-pid-1", "--new-session"),
            *("--hostname", "sandbox", "--seccomp", str(seccomp)),
            *_environment(self.environment()),
            *self._system(),
            *("--bind", str(self.folder.workspace), WORKSPACE),
            *("--bind", str(self.folder.home), AGENT_HOME),
            *("--bind", str(self.folder.tmp), "/tmp"),
            *self._verifier(),
            *("--ro-bind", str(self.program), PROGRAM),
            *("--remount-ro", "/", "--chdir", WORKSPACE),
        ]

    def _system(self) -> Iterator[str]:
        yield from ("--ro-bind", "/usr", "/usr")
        if not self.expose_usr_local:
            yield from ("--ro-bind", str(self.empty), "/usr/local")
        for name in ("bin", "sbin", "lib", "lib32", "lib64", "libx32"):
            link = Path("/", name)
            if link.is_symlink():
                yield from ("--symlink", os.readlink(link), str(link))
            elif link.is_dir():
                yield from ("--ro-bind", str(link), str(link))
        for name in SYSTEM_FILES:
            yield from ("--ro-bind-try", f"/etc/{name}", f"/etc/{name}")
        for path in sorted(self.folder.etc.iterdir()):
            yield from ("--ro-bind", str(path), f"/etc/{path.name}")
        yield from ("--proc", "/proc", "--dev", "/dev")
        for size, path in ((SHARED_MEMORY, "/dev/shm"), (VAR_TMP, "/var/tmp"), (RUN, "/run")):
            yield from ("--size", str(size), "--perms", "1777", "--tmpfs", path)
        yield from ("--remount-ro", "/dev")  # else its tmpfs is as large as half the machine's memory

    def _verifier(self) -> Iterator[str]:
        if self.verifier is not None:
            yield from ("--bind", str(self.verifier.home), VERIFIER_HOME)
            yield from ("--ro-bind", str(self.verifier.hidden), HIDDEN_FILES)


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


def _environment(variables: Mapping[str, str]) -> Iterator[str]:
    yield "--clearenv"
    for name, value in variables.items():
        yield from ("--setenv", name, value)
