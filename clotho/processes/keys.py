"""Keys of model servers, handed from process to process by pipes.

The kernel shows the environment that a process was started with as long as it lives (`/proc/PID/environ`) to every
process of the same user, such as an author's code. A worker that was started with keys therefore replaces itself by
one without them, which reads them from a pipe.
"""

import json
import os
import sys
from collections.abc import Iterable, Mapping
from typing import NoReturn

from clotho.config import KEYS_PIPE, environment_without, variable


def keys_of(names: Iterable[str]) -> dict[str, str]:
    """The keys of these names that this process has."""
    return {name: value for name in names if (value := variable(name)) is not None}


def pipe_with(keys: Mapping[str, str]) -> int:
    """A pipe with the keys in it: its reading end, which a child inherits."""
    reading, writing = os.pipe()
    # written before anybody reads: keys are few, and a pipe takes 64 KiB
    with os.fdopen(writing, "w") as pipe:
        json.dump(keys, pipe)
    # Python's descriptors are closed at an exec by default
    os.set_inheritable(reading, True)
    return reading


def replace_process(keys: Mapping[str, str], hidden: Iterable[str]) -> NoReturn:
    """Replace this process by itself, started without the `hidden` variables, with `keys` in a pipe."""
    environment = environment_without(hidden)
    if keys:
        environment[KEYS_PIPE] = str(pipe_with(keys))
    os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], environment)
