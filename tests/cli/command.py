"""The installed command as a user runs it: in a pipe, or on a terminal with Ctrl-C."""

import asyncio
import json
import os
import pty
import signal
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.support import PATIENCE_SECONDS

CLOTHO = str(Path(sys.executable).with_name("clotho"))
CHECKOUT = Path.cwd()


@dataclass(frozen=True)
class Finished:
    status: int
    output: str
    error: str

    @property
    def complaint(self) -> str:
        """The one line that a refused command says."""
        assert self.output == "", self.output
        assert "Traceback" not in self.error, self.error
        lines = self.error.splitlines()
        assert len(lines) == 1, self.error
        return lines[0]


async def run(
    *command: str | Path, folder: Path = CHECKOUT, environment: dict[str, str] | None = None
) -> Finished:
    process = await asyncio.create_subprocess_exec(
        *map(str, command),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        cwd=folder,
        env={**os.environ, **(environment or {})},
    )
    output, error = await process.communicate()
    assert process.returncode is not None
    return Finished(process.returncode, output.decode(), error.decode())


async def clotho(
    *arguments: str | Path, folder: Path = CHECKOUT, environment: dict[str, str] | None = None
) -> Finished:
    return await run(CLOTHO, *arguments, folder=folder, environment=environment)


async def clotho_many(
    orders: Mapping[str, Sequence[str]], folder: Path, *, apart: bool = False
) -> dict[str, Finished]:
    """The commands of `orders`, one after the other, in `folder`, or `apart` in folders of it with their names."""
    folders = {name: folder / name if apart else folder for name in orders}
    request = [(name, order, str(folders[name])) for name, order in orders.items()]
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.cli.many", stdin=asyncio.subprocess.PIPE, cwd=CHECKOUT
    )
    await process.communicate(json.dumps(request).encode())
    assert process.returncode == 0

    def said(name: str, ending: str) -> str:
        return (folders[name] / f"{name}.{ending}").read_text()

    return {
        name: Finished(int(said(name, "status")), said(name, "out"), said(name, "err")) for name in orders
    }


class Terminal:
    """A command in the foreground of a terminal of its own, of the kind that `TERM` names."""

    def __init__(self, *command: str | Path, term: str = "xterm-256color") -> None:
        words, environment = [str(word) for word in command], {**os.environ, "TERM": term}
        self.pid, self._terminal = pty.fork()
        if self.pid == 0:
            os.execve(words[0], words, environment)
        os.set_blocking(self._terminal, False)
        self.shown = ""
        self._status: int | None = None

    async def until(self, text: str, seconds: float = PATIENCE_SECONDS) -> None:
        """Wait until it has shown `text`."""
        async with asyncio.timeout(seconds):
            writable = True
            while text not in self.shown:
                assert writable, f"{text!r} was not shown: {self.shown}"
                await asyncio.sleep(0.02)
                writable = self._read()

    def interrupt(self) -> None:
        """Press Ctrl-C."""
        os.write(self._terminal, b"\x03")

    def type(self, line: str) -> None:
        """Type a line, and press Enter."""
        os.write(self._terminal, line.encode() + b"\n")

    async def ended(self, seconds: float = PATIENCE_SECONDS) -> int:
        """The exit status."""
        async with asyncio.timeout(seconds):
            while self._status is None:
                self._read()
                pid, status = os.waitpid(self.pid, os.WNOHANG)
                if pid:
                    self._status = os.waitstatus_to_exitcode(status)
                await asyncio.sleep(0.02)
        self._read()
        return self._status

    def close(self) -> None:
        if self._status is None:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        os.close(self._terminal)

    def _read(self) -> bool:
        """False once nobody can write any more."""
        try:
            while chunk := os.read(self._terminal, 65_536):
                self.shown += chunk.decode(errors="replace")
        except BlockingIOError:
            return True
        except OSError:
            return False
        return False


def descendants(pid: int) -> set[int]:
    """The processes that `pid` started, and those that these started."""
    parents = {}
    for folder in Path("/proc").iterdir():
        try:
            if folder.name.isdigit():
                parents[int(folder.name)] = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
        except (FileNotFoundError, ProcessLookupError):
            continue
    found = {pid}
    while more := {child for child, parent in parents.items() if parent in found} - found:
        found |= more
    return found - {pid}


def alive(pids: set[int]) -> set[int]:
    """The `pids` that run; ended ones that wait for their parent don't."""
    running = set()
    for pid in pids:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            continue
        if state != "Z":
            running.add(pid)
    return running


async def gone(pids: set[int], seconds: float = PATIENCE_SECONDS) -> None:
    assert pids
    async with asyncio.timeout(seconds):
        while alive(pids):
            await asyncio.sleep(0.05)


def caught(pid: int) -> set[int]:
    """The signals that a process has handlers for."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return set()
    [mask] = [int(line.split()[1], 16) for line in status.splitlines() if line.startswith("SigCgt:")]
    return {number for number in range(1, 65) if mask >> (number - 1) & 1}


def command_line(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""
