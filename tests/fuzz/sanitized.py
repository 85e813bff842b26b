"""The supervisor's sources with the compiler's sanitizers, as the program itself or around another main()."""

import shutil
import subprocess
from pathlib import Path

import pytest

from clotho.sandbox.supervisor import FOLDER

FLAGS = (
    "-fsanitize=address,undefined",
    "-fno-sanitize-recover=all",
    "-g",
    "-O1",
    "-std=gnu11",
    "-D_GNU_SOURCE",
)


def compiled(folder: Path, harness: Path | None = None) -> Path:
    """A program in `folder`; skips the test where no compiler has the sanitizers."""
    compiler = shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        pytest.skip("neither gcc nor clang is here, which have the sanitizers")
    sources = sorted(map(str, FOLDER.glob("*.c")))
    renamed = ("-Dmain=serve_main",) if harness else ()
    subprocess.run([compiler, *FLAGS, *renamed, "-c", *sources], cwd=folder, check=True)
    parts = sorted(map(str, folder.glob("*.o")))
    program = folder / "program"
    subprocess.run(
        [compiler, *FLAGS, f"-I{FOLDER}", "-o", program, *([harness] if harness else []), *parts], check=True
    )
    return program
