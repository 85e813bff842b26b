"""Adapters on a host that fails on purpose: lives forked from one process, which has imported Atropos once.

Run as a program, it reads lives from its input, one a line, and writes what became of each. A life is the adapter's
command line as it is, with one call to the host that raises; it notes the calls that it made.
"""

import asyncio
import atexit
import builtins
import ctypes
import io
import json
import os
import select
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from clotho.processes.parent_death import PR_SET_PDEATHSIG
from tests.sandbox.injection import ROOT, Injection, Site, injected

SHARED = ("/journal/", "/processes/", "/frozen_model")
"""Of the library: a call from there counts for who asked for it."""
OUTERMOST = "/atropos/main.py"
TOLD = threading.local()
FILE_CALLS = ("read", "readline", "write", "writelines", "flush", "truncate", "seek", "close", "fileno")


class AdapterInjection(Injection):
    """Tells the calls of the store apart by who asked for them, over threads."""

    def _place(self) -> str | None:
        inner, asker = places(sys._getframe(2))
        if inner is None:
            return None
        asker = asker or getattr(TOLD, "asker", None)
        return inner if asker in (None, inner) else f"{inner} < {asker}"


def places(frame: FrameType | None) -> tuple[str | None, str | None]:
    """The innermost function of the library, and the innermost that isn't of its shared parts."""
    inner, library = None, ""
    while frame is not None:
        code, file = frame.f_code, frame.f_code.co_filename
        if "/site-packages/" in file and not library:
            library = f"{file.rpartition('/site-packages/')[2]}:{code.co_name}"
        if file.startswith(ROOT):
            short = file.removeprefix(ROOT)
            place = f"{short}:{code.co_name}:{frame.f_lineno}"
            inner = inner or place
            if short == OUTERMOST:
                return (f"{place} < {library}" if inner == place else inner), None
            if not short.startswith(SHARED):
                return inner, place
        frame = frame.f_back
    return inner, None


class VisitedFile:
    """A file of the library's, every use of which is a call to the host."""

    def __init__(self, file: Any, injection: Injection) -> None:
        self._file, self._injection = file, injection

    def __getattr__(self, name: str) -> Any:
        real = getattr(self._file, name)
        if name not in FILE_CALLS:
            return real

        def visited(*arguments: Any) -> Any:
            try:
                self._injection.visit(f"file.{name}")
            except BaseException:
                if name == "close":
                    real()
                raise
            return real(*arguments)

        return visited

    def __iter__(self) -> Iterator[Any]:
        self._injection.visit("file.read")
        return iter(self._file)

    def __enter__(self) -> "VisitedFile":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@contextmanager
def failing(injection: Injection) -> Iterator[None]:
    """Calls of the library to the host go through `injection`: of files, threads and TCP."""
    with pytest.MonkeyPatch.context() as patch, injected(patch, injection):
        for name in ("fsync", "readlink"):
            patch.setattr(os, name, visiting(injection, name, getattr(os, name)))
        for owner in (io, builtins):
            patch.setattr(owner, "open", opening(injection, owner.open))
        for name in ("connect", "send", "recv"):
            patch.setattr(socket.socket, name, of_tcp(injection, name, getattr(socket.socket, name)))
        patch.setattr(asyncio.BaseEventLoop, "run_in_executor", asked(asyncio.BaseEventLoop.run_in_executor))
        yield


def visiting(injection: Injection, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
    def visited(*arguments: Any, **options: Any) -> Any:
        injection.visit(name)
        return real(*arguments, **options)

    return visited


def of_tcp(injection: Injection, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
    """Not of the pairs by which an event loop wakes itself."""

    def visited(self: socket.socket, *arguments: Any) -> Any:
        if self.family != socket.AF_UNIX:
            injection.visit(name)
        return real(self, *arguments)

    return visited


def opening(injection: Injection, real: Callable[..., Any]) -> Callable[..., Any]:
    def opened(*arguments: Any, **options: Any) -> Any:
        file = real(*arguments, **options)
        inner, _ = places(sys._getframe(1))
        ours = inner is not None and not inner.startswith(OUTERMOST)
        return VisitedFile(file, injection) if ours else file

    return opened


def asked(real: Callable[..., Any]) -> Callable[..., Any]:
    def run_in_executor(self: Any, executor: Any, work: Callable[..., Any], *arguments: Any) -> Any:
        inner, asker = places(sys._getframe(1))

        def told() -> Any:
            TOLD.asker = asker or inner
            return work(*arguments)

        return real(self, executor, told)

    return run_in_executor


def main() -> None:
    import wandb
    from atroposlib.envs import base

    from clotho.plugins.atropos.env import ClothoEnv

    assert wandb and base
    pids: dict[int, int] = {}
    lines = Lines()
    number = 0
    while True:
        for line in lines.read(0.02):
            order = json.loads(line)
            pid = os.fork()
            if pid == 0:
                return life(ClothoEnv, order)
            pids[pid] = number
            answer(number, pid, None)
            number += 1
        for pid in list(pids):
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                answer(pids.pop(pid), pid, os.waitstatus_to_exitcode(status))


class Lines:
    def __init__(self) -> None:
        self._rest = b""

    def read(self, seconds: float) -> list[bytes]:
        if not select.select([0], [], [], seconds)[0]:
            return []
        if not (read := os.read(0, 65536)):
            os._exit(0)
        *whole, self._rest = (self._rest + read).split(b"\n")
        return whole


def answer(number: int, pid: int, status: int | None) -> None:
    os.write(1, json.dumps([number, pid, status]).encode() + b"\n")


def life(kind: Any, order: dict[str, Any]) -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    descriptor = os.open(order["log"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    os.environ.update(order["variables"])
    sys.argv = ["atropos_adapter.py", *order["argv"]]

    def failure() -> BaseException:
        if order["target"][0] == "start":
            return RuntimeError("can't start new thread")
        return OSError(order["errno"], os.strerror(order["errno"]))

    failures = {Site(*order["target"]): failure} if order["target"] else {}
    injection = AdapterInjection(ROOT, failures)
    atexit.register(note, Path(order["sites"]), injection)
    with failing(injection), without_pause(asyncio.sleep), told_to_stop_at_work_only(signal.signal):
        kind.cli()


def note(path: Path, injection: AdapterInjection) -> None:
    """Tell the calls of this life, which ends."""
    seen = [[site.call, site.place] for site in list(injection.seen)]
    path.write_text(json.dumps({"seen": seen, "fired": len(injection.fired)}))


@contextmanager
def without_pause(real: Callable[..., Any]) -> Iterator[None]:
    """Atropos waits five seconds for others to start: there are none."""

    async def sleep(seconds: float, *result: Any) -> Any:
        return await real(0 if seconds == 5 else seconds, *result)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(asyncio, "sleep", sleep)
        yield


@contextmanager
def told_to_stop_at_work_only(real: Callable[..., Any]) -> Iterator[None]:
    """A life that ends by its failure isn't killed meanwhile by the signal that would have ended its work."""

    def ignored_once_unhandled(number: int, handler: Any) -> Any:
        ignored = number == signal.SIGTERM and handler == signal.SIG_DFL
        return real(number, signal.SIG_IGN if ignored else handler)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(signal, "signal", ignored_once_unhandled)
        yield


if __name__ == "__main__":
    main()
