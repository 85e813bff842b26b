"""An ssh server on loopback with keys of its own, and backends that reach this machine through it."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from shlex import quote

import pytest

from clotho.plugins.ssh.address import SshHost
from clotho.plugins.ssh.backend import SshBackend
from clotho.processes.ports import free_port
from tests.sandbox.remote_host import folders
from tests.support import PATIENCE_SECONDS

CHECKOUT = Path(__file__).parents[2]
SERVER = f"cd {quote(str(CHECKOUT))} && exec {quote(sys.executable)} -m clotho.plugins.ssh.remote"
CONFIGURATION = """\
ListenAddress 127.0.0.1
Port {port}
HostKey {folder}/host
AuthorizedKeysFile {folder}/user.pub
PidFile none
StrictModes no
UsePAM no
PasswordAuthentication no
PermitRootLogin prohibit-password
MaxStartups 100
"""


class SshServer:
    """One sshd, with its files in `folder`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        program = shutil.which("sshd", path=f"{os.environ['PATH']}:/usr/sbin")
        if os.geteuid() != 0 or program is None:
            pytest.skip("an ssh server takes root and openssh-server")
        self._command = [program, "-D", "-e", "-f", str(folder / "config")]
        folder.mkdir()
        self.port = free_port()
        for name in ("host", "user"):
            make_key(folder / name)
        self.trust(folder / "host.pub")
        (folder / "config").write_text(CONFIGURATION.format(folder=folder, port=self.port))
        (folder / "host.json").write_text(self.host("loopback").model_dump_json())

    def trust(self, key: Path) -> None:
        kind, public, *_ = key.read_text().split()
        (self.folder / "known_hosts").write_text(f"[127.0.0.1]:{self.port} {kind} {public}\n")

    def host(self, name: str, **changed: object) -> SshHost:
        settings = SshHost(
            name=name,
            address="127.0.0.1",
            port=self.port,
            user="root",
            key=self.folder / "user",
            known_hosts=self.folder / "known_hosts",
            capacity=1000,
            command=SERVER,
            root=str(self.folder.parent / f"ssh-{name}"),
        )
        return settings.model_copy(update=changed)

    def __enter__(self) -> "SshServer":
        Path("/run/sshd").mkdir(exist_ok=True)  # where sshd confines the process that isn't logged in yet
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(self._command, stderr=log, stdin=subprocess.DEVNULL)
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            with suppress(ConnectionRefusedError):
                socket.create_connection(("127.0.0.1", self.port)).close()
                return self
            assert self._process.poll() is None, (self.folder / "log").read_text()
            assert time.monotonic() < deadline
            time.sleep(0.02)

    def __exit__(self, *error: object) -> None:
        self.vanish()

    def vanish(self) -> None:
        """End the server and every session, as if the machine were cut off."""
        self._process.kill()
        self._process.wait()
        self.end_sessions()

    def end_sessions(self) -> None:
        """Kill the processes that serve connections: those whose parent was the server or has just ended."""
        for process in self.sessions():
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)

    def sessions(self) -> list[int]:
        """Processes that hold an end of a connection to this server's port, other than this one's."""
        ends = {
            line.split()[9] for line in _tcp() if int(line.split()[1].rpartition(":")[2], 16) == self.port
        }
        return [
            int(process.name)
            for process in Path("/proc").iterdir()
            if process.name.isdigit() and int(process.name) != self._process.pid and _holds(process, ends)
        ]


@pytest.fixture(scope="session")
def sshd(folder: Path) -> Iterator[SshServer]:
    """An ssh server of this machine, for backends in this process and in others."""
    with patient_connections(), SshServer(folder / "sshd") as server:
        yield server


@contextmanager
def patient_connections() -> Iterator[None]:
    """A server that takes its time is no outage."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("clotho.plugins.ssh.host.CONNECT_SECONDS", PATIENCE_SECONDS)
        yield


def make_key(path: Path) -> None:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(path)], check=True)


def ssh_backend(root: Path, *hosts: SshHost, lease_seconds: float = 600.0) -> SshBackend:
    """The backend over `hosts`, else over the one of the session's server beside `root`."""
    if not hosts:
        hosts = (SshHost.model_validate_json((root.parent / "sshd" / "host.json").read_text()),)
    folders.update(Path(host.root) / root.name for host in hosts)
    return SshBackend(hosts, root.name, lease_seconds)


def _tcp() -> list[str]:
    return Path("/proc/net/tcp").read_text().splitlines()[1:]


def _holds(process: Path, inodes: set[str]) -> bool:
    try:
        links = [_link(each) for each in (process / "fd").iterdir()]
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return False
    return any(link.removeprefix("socket:[").rstrip("]") in inodes for link in links)


def _link(descriptor: Path) -> str:
    """The file that it is open on; nothing if its path is too long to be told, or it is closed by now."""
    try:
        return os.readlink(descriptor)
    except OSError:
        return ""
