"""Checks and quoting of the paths that models give."""

import posixpath
import shlex

from clotho.errors import InvalidInput
from clotho.sandbox.backend import AGENT_HOME
from clotho.sandbox.supervised.layout import below_home
from clotho.tools import shell
from clotho.tools.tool import CallContext

REFUSED_TREES = (
    "/boot",
    "/dev",
    "/etc",
    "/proc",
    "/sys",
    "/run/containerd",
    "/run/podman",
    "/var/run/podman",
)
REFUSED_FILES = ("/run/docker.sock", "/var/run/docker.sock", "/run/crio/crio.sock")
CREDENTIALS = (
    ".aws/credentials",
    ".config/gh/hosts.yml",
    ".docker/config.json",
    ".git-credentials",
    ".gnupg",
    ".kube/config",
    ".netrc",
    ".npmrc",
    ".pgpass",
    ".pypirc",
    ".ssh",
)


def checked(path: str) -> str:
    """`path`, below ~ where it is below $HOME. Raises InvalidInput for what can't be a path."""
    if not path or "\0" in path:
        raise InvalidInput("path must not be empty or hold a NUL character")
    return below_home(path)


def absolute_path(path: str, context: CallContext) -> str:
    """`path` as the file verbs take it: a relative one starts where the last command ended, or as configured."""
    path = checked(path)
    if shell.last_command(context) is None and not path.startswith(("/", "~")):
        return posixpath.join(context.settings.terminal_cwd, path)
    return path


def refuse_protected(path: str) -> None:
    """Raises InvalidInput for system and credential files.

    It spares a model mistakes and is no boundary: that is the sandbox's user.
    """
    full = posixpath.normpath(AGENT_HOME + path[1:] if path == "~" or path.startswith("~/") else path)
    # normpath keeps two slashes at the beginning
    full = full.removeprefix("/") if full.startswith("//") else full
    credentials = [f"{home}/{name}" for home in (AGENT_HOME, "/root") for name in CREDENTIALS]
    if full in REFUSED_FILES or any(
        full == tree or full.startswith(f"{tree}/") for tree in (*REFUSED_TREES, *credentials)
    ):
        raise InvalidInput(f"Refused: {path} is a protected system or credential file")


def quoted(path: str) -> str:
    """`path` as a word of a bash script; `~` is HOME, as for the file verbs."""
    if path == "~":
        return '"$HOME"'
    if path.startswith("~/"):
        return f'"$HOME"/{shlex.quote(path[2:])}'
    return shlex.quote(f"./{path}" if path.startswith("-") else path)
