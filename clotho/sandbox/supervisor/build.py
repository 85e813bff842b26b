"""Builds the supervisor for every architecture: `python -m clotho.sandbox.supervisor.build [FOLDER]`.

The result depends on the sources and the version of ziglang alone, so that anybody can check the programs
that are shipped.
"""

import subprocess
import sys
from pathlib import Path

from clotho.sandbox.supervisor import ARCHITECTURES, FOLDER

FLAGS = ("-Os", "-s", "-std=gnu11", "-Wall", "-Wextra", "-Wmissing-prototypes", "-Werror", "-D_GNU_SOURCE")
HARDENED = ("-static", "-fPIE", "-pie", "-Wl,-z,relro,-z,now", "-fstack-protector-strong")


def build(architecture: str, target: Path) -> None:
    """Compile the program for `architecture` to `target`."""
    sources = sorted(path.name for path in FOLDER.glob("*.c"))
    compiler = (sys.executable, "-m", "ziglang", "cc", "-target", f"{architecture}-linux-musl")
    subprocess.run(
        [*compiler, *FLAGS, *HARDENED, "-o", str(target.absolute()), *sources], cwd=FOLDER, check=True
    )


if __name__ == "__main__":
    destination = Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER
    for each in ARCHITECTURES:
        build(each, destination / f"supervisor-{each}")
