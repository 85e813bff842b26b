"""The program that Playwright starts as Chromium: the browser in bubblewrap, without network or host files."""

import os
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

from clotho.config import browsers_of_playwright
from clotho.host import program_on_path

FIRST_PORT = 20_000
PORTS = "ports"
"""The folder of the sockets that the browser's ports lead to."""
SEEN_PORTS = "/ports"
"""Where the browser sees that folder, whose own path can be too long for a socket."""
NAMES = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome")
NO_PLAYWRIGHT = "Playwright is missing: pip install 'clotho-rollouts[browser]'"
NO_CHROMIUM = "Chromium is missing: apt-get install chromium"
NO_BUBBLEWRAP = "bubblewrap is missing: apt-get install bubblewrap"
SYSTEM_FILES = (
    *("alternatives", "ca-certificates", "chromium", "chromium.d", "fonts", "ld.so.cache", "localtime"),
    *("opt", "ssl/certs"),
)
"""Entries of the host's /etc that the browser sees."""


def lacking() -> str | None:
    """What this host needs before it can run a browser, with the command that installs it; None: nothing."""
    if find_spec("playwright") is None:
        return NO_PLAYWRIGHT
    if program_on_path("bwrap") is None:
        return NO_BUBBLEWRAP
    return NO_CHROMIUM if chromium() is None else None


def chromium() -> Path | None:
    """The system's Chromium, else the newest of Playwright's own."""
    found = next(filter(None, map(program_on_path, NAMES)), None)
    own = browsers_of_playwright().glob("chromium-*/chrome-linux*/chrome")
    return found or max(own, key=lambda path: int(path.parts[-3].rpartition("-")[2]), default=None)


@contextmanager
def socket_path(path: Path) -> Iterator[str]:
    """Yield a short path of a socket: the kernel takes no more than 107 bytes."""
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)


def write_program(folder: Path, browser: Path, ports: int) -> Path:
    """Write the program into `folder`; the browser sees only its `tmp`, to write to, and its ports' sockets."""
    temporary, sockets = folder / "tmp", folder / PORTS
    for each in (temporary, sockets):
        each.mkdir(exist_ok=True)
    bound = {Path("/usr"), Path(sys.base_prefix), browser.resolve().parent}
    # a folder below another is bound with that one
    inside = [each for each in bound if not any(other in each.parents for other in bound)]
    relay = Path(__file__).parent / "process" / "relay.py"
    command = [
        *("bwrap", "--unshare-all", "--unshare-user", "--die-with-parent", "--new-session"),
        *("--uid", "1000", "--gid", "1000", "--hostname", "browser", "--clearenv"),
        *("--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp", "--dir", "/home"),
        *(part for each in sorted(inside) for part in ("--ro-bind", str(each), str(each))),
        *(part for each in ("bin", "lib", "lib64") for part in ("--symlink", f"usr/{each}", f"/{each}")),
        *(part for each in SYSTEM_FILES for part in ("--ro-bind-try", f"/etc/{each}", f"/etc/{each}")),
        # sockets read-only: a page that took the browser over could put one of its own in a proxy's place
        *("--bind", str(temporary), str(temporary), "--ro-bind", str(sockets), SEEN_PORTS),
        *("--ro-bind", str(relay), "/relay.py"),
        # Sockets that Chromium makes in its temporary folder must have short paths.
        *("--setenv", "HOME", str(temporary), "--setenv", "TMPDIR", "/tmp"),
        *("--setenv", "PATH", "/usr/bin:/bin", "--setenv", "LANG", "C.UTF-8", "--"),
        # a virtual environment's python is a link, and its folder isn't seen inside
        *(str(Path(sys.executable).resolve()), "-I", "-S", "/relay.py"),
        *(SEEN_PORTS, str(FIRST_PORT), str(ports), str(browser)),
    ]
    # a file: Playwright takes the path of a program, and adds arguments of its own
    program = folder / "chromium"
    program.write_text(f'#!/bin/sh\nexec {shlex.join(command)} "$@"\n')
    program.chmod(0o755)
    return program
