"""The application's programs: at the root of a checkout, inside the package where it was installed.

    python -m clotho.application worker --store …

runs one with the application's folder first on the path and the current folder last, so that an author's modules
are found beside the user and no top-level module of an installation is shadowed or taken.
"""

import gc
import importlib
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

_INSTALLED = Path(__file__).parent / "_application"
FOLDER = _INSTALLED if _INSTALLED.is_dir() else Path(__file__).parent.parent
THRESHOLDS = (5_000, 20, 20)
"""Of garbage collection. A turn makes thousands of objects, nearly all freed by their counts of references: with
Python's 700, looking for cycles takes a twentieth of a busy worker's processor time."""


def on_path() -> None:
    """Let this process import the application, and modules in the current folder."""
    for folder in (FOLDER, Path.cwd()):
        if str(folder) not in sys.path:
            sys.path.append(str(folder))


def command(program: str, *arguments: str) -> list[str]:
    """The command line that runs `main` of a program: worker, atropos_adapter or a module of the application."""
    return [sys.executable, "-m", __name__, program, *arguments]


def unversioned_worker(store: str, temporal: str) -> list[str]:
    """The command line of workers without a build id, for a Temporal server that Clotho started."""
    # a build id in the user's environment would leave these workers without work
    return ["env", "CLOTHO_WORKER__BUILD_ID=", *command("worker", "--store", store, "--temporal", temporal)]


def replace_process(program: str, *arguments: str) -> NoReturn:
    """Replace this process by `program`."""
    argv = command(program, *arguments)
    # exec: signals and the exit status are the program's, with no process in between
    os.execv(argv[0], argv)


@contextmanager
def importing() -> Iterator[None]:
    """Exempt modules that the block imports from garbage collection: they live as long as the process.

    Collections took a quarter of `clotho worker --help`, and 7 % of a busy worker's processor time.
    """
    gc.disable()
    try:
        yield
    finally:
        # frozen, not just left alone: every later collection would walk the modules again
        gc.freeze()
        gc.enable()


def main() -> None:
    # `python -m` put the current folder first: a user's `workflows` would hide the application's.
    sys.path[0] = str(FOLDER)
    sys.path.append(str(Path.cwd()))
    gc.set_threshold(*THRESHOLDS)
    with importing():
        program = importlib.import_module(sys.argv[1])
    sys.argv[:] = [str(program.__file__), *sys.argv[2:]]
    sys.exit(program.main())


if __name__ == "__main__":
    main()
