"""Failures of the host on purpose: a call by which the library reaches it raises, once."""

import builtins
import ctypes
import fcntl
import io
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import clotho

ROOT = str(Path(clotho.__file__).parent)
CALLS: tuple[tuple[Any, str], ...] = (
    *(
        (os, name)
        for name in (
            *(
                "open",
                "read",
                "pread",
                "write",
                "mkdir",
                "rename",
                "link",
                "unlink",
                "mkfifo",
                "rmdir",
                "listdir",
            ),
            *("scandir", "stat", "statvfs", "utime", "chmod", "chown", "fchown", "pipe", "memfd_create"),
            "pidfd_open",
        )
    ),
    (fcntl, "flock"),
    (io, "open"),
    (builtins, "open"),
    (subprocess, "Popen"),
    (threading.Thread, "start"),
)


@dataclass(frozen=True)
class Site:
    """A call of the library: the function of the host, and the library's function and line that lead to it."""

    call: str
    place: str


@dataclass
class Injection:
    """Records the sites it sees; raises a failure at the first visit of each site that has one."""

    package: str
    failures: Mapping[Site, Callable[[], BaseException]] = field(default_factory=dict)
    seen: dict[Site, int] = field(default_factory=dict)
    fired: set[Site] = field(default_factory=set)

    def visit(self, call: str) -> None:
        place = self._place()
        if place is None:
            return
        site = Site(call, place)
        self.seen[site] = self.seen.get(site, 0) + 1
        if site in self.failures and site not in self.fired:
            self.fired.add(site)
            raise self.failures[site]()

    def _place(self) -> str | None:
        frame = sys._getframe(2)
        while frame is not None:
            file = frame.f_code.co_filename
            if file.startswith(self.package):
                return f"{file.removeprefix(ROOT)}:{frame.f_code.co_name}:{frame.f_lineno}"
            if frame.f_back is None:
                return None
            frame = frame.f_back
        return None


@contextmanager
def injected(monkeypatch: pytest.MonkeyPatch, injection: Injection) -> Iterator[Injection]:
    """Every call in CALLS goes through `injection`, in all threads of this process."""
    with monkeypatch.context() as patch:
        for owner, name in CALLS:
            patch.setattr(owner, name, _through(injection, name, getattr(owner, name)))
        yield injection


def _through(injection: Injection, name: str, real: Callable[..., Any]) -> Any:
    if isinstance(real, type):

        class Visited(real):  # type: ignore[valid-type,misc]
            def __init__(self, *arguments: Any, **options: Any) -> None:
                injection.visit(name)
                super().__init__(*arguments, **options)

        return Visited

    def visited(*arguments: Any, **options: Any) -> Any:
        injection.visit(name)
        return real(*arguments, **options)

    return visited


class NoInotify:
    """libc whose inotify is used up."""

    def __init__(self, failing: str, number: int) -> None:
        self._real = ctypes.CDLL(None, use_errno=True)
        self._failing, self._number = failing, number

    def __getattr__(self, name: str) -> Any:
        if name != self._failing:
            return getattr(self._real, name)

        def fail(*_: object) -> int:
            ctypes.set_errno(self._number)
            return -1

        return fail
