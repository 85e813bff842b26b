"""A command that gets SIGTERM when the process that started it dies.

Run as a script, it asks the kernel for SIGTERM at its parent's death, then becomes the program.
"""

import ctypes
import os
import signal
import sys
from collections.abc import Sequence

PR_SET_PDEATHSIG = 1


def with_parent_death_signal(command: Sequence[str]) -> list[str]:
    """Wrap `command`, which this process starts, so that it gets SIGTERM at this process's death."""
    # isolated and without `site`: it starts quickly, and no variable or file of the user's changes what it does
    return [sys.executable, "-I", "-S", __file__, str(os.getpid()), *command]


def main() -> None:
    parent, *command = sys.argv[1:]
    # the setting outlasts exec; the kernel sends the signal when the thread that forked ends, so that thread must
    # live as long as the process
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    # a parent that died before the call above sends nothing
    if os.getppid() != int(parent):
        sys.exit("the parent died before this program started")
    try:
        os.execvp(command[0], command)
    except OSError as error:
        sys.exit(f"{command[0]}: {error.strerror}")


if __name__ == "__main__":
    main()
