"""An image for Apptainer, made from this machine's own programs as that for containers: a folder."""

import io
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from clotho.plugins.apptainer.command import Apptainer
from clotho.plugins.apptainer.config import ApptainerConfig
from clotho.sandbox.backend import SandboxSpec
from tests.machine_image import write_root

RUN = os.environ.setdefault("RUN_OF_TESTS", str(os.getpid()))
IMAGE = Path(tempfile.gettempdir(), f"clotho-image-{RUN}{os.environ.get('PYTEST_XDIST_WORKER', '')}")
"""The same in programs that a test starts, and another one in each process of the tests."""
MOUNTED_OVER = ("dev", "proc", "sys", "var/tmp", "home", "run")
"""Folders that Apptainer wants to find, as any image has them."""


@pytest.fixture(scope="session")
def apptainer_image() -> Iterator[Path]:
    if Apptainer.installed() is None:
        pytest.skip("neither apptainer nor singularity is installed")
    write_image(IMAGE)
    yield IMAGE
    shutil.rmtree(IMAGE)


def write_image(folder: Path) -> None:
    content = io.BytesIO()
    write_root(content)
    folder.mkdir(parents=True, exist_ok=True)
    subprocess.run(["tar", "-x", "-C", folder], input=content.getvalue(), check=True)
    for name in MOUNTED_OVER:
        (folder / name).mkdir(parents=True, exist_ok=True)


def apptainer_spec() -> SandboxSpec:
    return SandboxSpec(backend=ApptainerConfig(image=str(IMAGE)), disk_mb=200, memory_mb=512)
