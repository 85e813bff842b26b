"""Folders of a sandbox beside its workspace, home and /tmp: further ones, further names, and the host's."""

import re
from collections.abc import Iterable, Mapping

AGENT_HOME = "/home/agent"
WORKSPACE = "/work"
TMP = "/tmp"
USUAL_VARIABLES = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "LANG": "C.UTF-8",
    "SHELL": "/bin/bash",
}
"""Variables of commands in images that don't set them."""

FIXED = (WORKSPACE, AGENT_HOME, TMP)
MOST_ROOTS = 5
"""A checkpoint holds eight folders, these three among them."""
SYSTEM = ("bin", "boot", "dev", "etc", "lib", "lib32", "lib64", "libx32", "proc", "run", "sbin", "sys", "usr")
PATH = re.compile(r"(/[A-Za-z0-9_-][A-Za-z0-9._-]*)+")


def outermost(paths: Iterable[str]) -> tuple[str, ...]:
    """The paths that lie in no other one, without `/`: nothing is mounted over a whole system."""
    own = tuple(path for path in dict.fromkeys(paths) if path != "/")
    return tuple(
        path for path in own if not any(f"{path}/".startswith(f"{other}/") for other in own if other != path)
    )


def check_places(roots: Iterable[str], aliases: Mapping[str, str]) -> None:
    """Raises ValueError for paths that can't be folders of their own, and for aliases of no such folder."""
    roots = tuple(roots)
    if len(roots) > MOST_ROOTS:
        raise ValueError(f"a sandbox has at most {MOST_ROOTS} further writable folders, not {len(roots)}")
    taken = [*FIXED, "/var/tmp"]
    for path in (*roots, *aliases):
        if PATH.fullmatch(path) is None or path.split("/")[1] in SYSTEM:
            raise ValueError(f"{path!r} can't be a writable folder of a sandbox")
        if met := next((other for other in taken if _overlap(path, other)), None):
            raise ValueError(f"{path!r} and {met!r} lie within each other: a sandbox has them apart")
        taken.append(path)
    for path, meant in aliases.items():
        if meant not in (*FIXED, *roots):
            raise ValueError(
                f"{path!r} stands for {meant!r}, which is not among {', '.join((*FIXED, *roots))}"
            )


def check_mounts(mounts: Mapping[str, str], own: Iterable[str]) -> None:
    """Raises ValueError for paths where nothing can be mounted, and for sources that can't be a host's folder.

    `own` are the sandbox's further paths.
    """
    taken = [*FIXED, "/var/tmp", *own]
    for path, folder in mounts.items():
        if PATH.fullmatch(path) is None or path.split("/")[1] in SYSTEM:
            raise ValueError(f"nothing can be mounted at {path!r} in a sandbox")
        if met := next((other for other in taken if _overlap(path, other)), None):
            raise ValueError(f"{path!r} and {met!r} lie within each other: a sandbox has them apart")
        if not folder.startswith("/") or ":" in folder or {"..", "."} & set(folder.split("/")):
            raise ValueError(f"{folder!r} is no absolute path of a folder without `.`, `..` and colons")
        taken.append(path)


def _overlap(one: str, other: str) -> bool:
    return f"{one}/".startswith(f"{other}/") or f"{other}/".startswith(f"{one}/")
