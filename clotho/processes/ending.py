"""The end of a process."""

import atexit
import os
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import NoReturn

INTERRUPTED = 128 + signal.SIGINT
"""The exit status after Ctrl-C, as shells have it."""


def leave(status: int) -> NoReturn:
    """Exit without the interpreter's shutdown, which the SDK's native threads can abort, or wait for for ever."""
    # `os._exit` runs no exit handlers and flushes nothing.
    atexit._run_exitfuncs()
    try:
        sys.stdout.flush()
    except OSError:  # what was said is lost: a full disk, a pipe that nobody reads
        status = status or 1
    with suppress(OSError):
        sys.stderr.flush()
    os._exit(status)


def run_to_end(program: Callable[[], int]) -> NoReturn:
    """Exit with the status that `program` returns, or as the interpreter does for what it raises."""
    try:
        status = program()
    except SystemExit as end:
        if isinstance(end.code, str):
            sys.stderr.write(f"{end.code}\n")
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException as error:
        with suppress(OSError):  # told by `leave`
            sys.stdout.flush()  # so that the error comes after what was said before it
        sys.excepthook(*sys.exc_info())
        status = INTERRUPTED if isinstance(error, KeyboardInterrupt) else 1
    leave(status)
