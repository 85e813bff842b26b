"""Builds the supervisor for every architecture: `python -m clotho.sandbox.supervisor.build [FOLDER]`.

The result depends on the sources and the version of ziglang alone, so that anybody can check the programs
that are shipped: `make test-supervisor`. The file BUILT names what they were built from.
"""

import hashlib
import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from clotho.sandbox.supervisor import ARCHITECTURES, FOLDER

BUILT = "built.json"

FLAGS = ("-Os", "-s", "-std=gnu11", "-Wall", "-Wextra", "-Wmissing-prototypes", "-Werror", "-D_GNU_SOURCE")
HARDENED = ("-static", "-fPIE", "-pie", "-Wl,-z,relro,-z,now", "-fstack-protector-strong")


def build(architecture: str, target: Path) -> None:
    """Compile the program for `architecture` to `target`."""
    sources = sorted(path.name for path in FOLDER.glob("*.c"))
    compiler = (sys.executable, "-m", "ziglang", "cc", "-target", f"{architecture}-linux-musl")
    subprocess.run(
        [*compiler, *FLAGS, *HARDENED, "-o", str(target.absolute()), *sources], cwd=FOLDER, check=True
    )


def digests(programs: Path = FOLDER) -> Mapping[str, str]:
    """SHA-256 of the sources with the compiler's options, and of each program in folder `programs`."""
    sources = hashlib.sha256(" ".join((*FLAGS, *HARDENED)).encode())
    for path in sorted([*FOLDER.glob("*.c"), *FOLDER.glob("*.h")]):
        sources.update(f"\0{path.name}\0".encode() + path.read_bytes())
    built = {each: (programs / f"supervisor-{each}").read_bytes() for each in ARCHITECTURES}
    return {
        "sources": sources.hexdigest(),
        **{each: hashlib.sha256(content).hexdigest() for each, content in built.items()},
    }


if __name__ == "__main__":
    destination = Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER
    for each in ARCHITECTURES:
        build(each, destination / f"supervisor-{each}")
    (destination / BUILT).write_text(json.dumps(digests(destination), indent=2) + "\n")
