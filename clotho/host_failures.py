"""Failures of the machine that Clotho runs on, such as no memory or a full disk.

They are retried, since no tool, verifier or policy is at fault: they are neither a result nor a reward.
"""

import errno
import traceback
from pathlib import Path

HOST_ERRNOS = frozenset(
    {
        # EAGAIN: no more processes or threads; ENOLCK: no more locks
        *(errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS, errno.EAGAIN, errno.ENOLCK),
        *(errno.ENOSPC, errno.EDQUOT, errno.EROFS),
        # ESTALE: a network file system lost the file; EUCLEAN: a damaged file system
        *(errno.EIO, errno.EREMOTEIO, errno.ESTALE, errno.EUCLEAN, errno.ENODEV, errno.ENXIO),
    }
)
"""Exhausted resources of the host, and failing disks."""
PACKAGE = Path(__file__).parent
AUTHORS_HAND = str(PACKAGE / "environment" / "tool_context.py")
"""Its frames do what an author's code asks for on its own host, such as to read a file that it names."""
INSTALLED = ("site-packages", "dist-packages")
CALLERS = frozenset(
    str(PACKAGE / name)
    for name in ("environment/in_process.py", "environment/threads.py", "tools/dispatch.py")
)
"""Their frames call code of authors and of other packages."""


def is_host_failure(error: BaseException) -> bool:
    """Whether the host is at fault: no descriptors, memory, threads or disk, or an I/O error."""
    if isinstance(error, OSError):
        return error.errno in HOST_ERRNOS
    return isinstance(error, MemoryError) or is_thread_failure(error)


def raised_by_clotho(error: BaseException) -> bool:
    """Whether Clotho's own code met `error`: the innermost frame outside of libraries is Clotho's."""
    # an author's code may be installed, and looks like a library then: it is told by the frame that calls it
    installed = False
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        path = Path(frame.filename)
        # an installed application is in the package, and has environments: an author's code, not Clotho's
        if PACKAGE in path.parents and "_application" not in path.parts:
            if frame.filename != AUTHORS_HAND:
                return not (installed and frame.filename in CALLERS)
        elif not _of_a_library(path):
            return False
        else:
            installed = installed or any(part in INSTALLED for part in path.parts)
    return False


def _of_a_library(path: Path) -> bool:
    standard = Path(traceback.__file__).parent
    return standard in path.parents or path.name.startswith("<") or any(p in INSTALLED for p in path.parts)


def is_thread_failure(error: BaseException) -> bool:
    # Python has no class of its own for it
    return isinstance(error, RuntimeError) and str(error).startswith("can't start new thread")


def described(error: BaseException) -> str:
    """The exception in a few words, without the paths of this host that an OSError names."""
    text = (error.strerror or "I/O error") if isinstance(error, OSError) and error.errno else str(error)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
