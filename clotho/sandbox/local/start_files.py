"""Files that bubblewrap copies from descriptors into a sandbox's view: no path on a disk leads to them."""

import fcntl
import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from clotho.sandbox.supervised.seccomp import program as seccomp_program

SEALS = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE
COPIED = ("ld.so.cache", "mime.types", "magic")
"""Small files of the host's /etc: to mount one costs more than to copy it."""


@dataclass(frozen=True)
class StartFiles:
    """Descriptors of the filter of system calls, the supervisor's program, and files of /etc by name."""

    seccomp: int
    program: int
    etc: Mapping[str, int]

    def descriptors(self) -> list[int]:
        return [self.seccomp, self.program, *self.etc.values()]


@contextmanager
def start_files(supervisor: bytes, accounts: Mapping[str, str]) -> Iterator[StartFiles]:
    with ExitStack() as stack:

        def sealed(name: str, content: bytes) -> int:
            descriptor = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
            stack.callback(os.close, descriptor)
            os.write(descriptor, content)
            # bubblewrap reads from where the descriptor stands
            os.lseek(descriptor, 0, os.SEEK_SET)
            # whoever gets hold of the descriptor can't change what starts
            fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, SEALS)
            return descriptor

        etc = {name: sealed(name, text.encode()) for name, text in accounts.items()}
        for name in COPIED:
            if (path := Path("/etc", name)).is_file():
                # opened for each start: two starts would share one offset
                etc[name] = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
                stack.callback(os.close, etc[name])
        yield StartFiles(sealed("seccomp", seccomp_program()), sealed("supervisor", supervisor), etc)
