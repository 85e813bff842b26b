"""The mounts among which local sandboxes are started."""

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from tempfile import mkdtemp

import pytest

from clotho.sandbox.local.apart import Apart
from tests.sandbox.conftest import needs_root


@pytest.fixture
def root() -> Iterator[Path]:
    """Below a folder whose mounts stay."""
    made = Path(mkdtemp(dir="/dev/shm"))
    yield made
    for disk in made.glob("*/disk"):
        subprocess.run(["umount", disk], check=False)
    shutil.rmtree(made)


def mounted(root: Path, name: str) -> Path:
    disk = root / name / "disk"
    disk.mkdir(parents=True)
    subprocess.run(["mount", "-t", "tmpfs", "none", disk], check=True)
    return disk


@needs_root
def test_disks_of_other_sandboxes_are_left_wherever_the_root_is(root: Path) -> None:
    other, own = mounted(root, "other"), mounted(root, "own")
    with Apart((root,)).with_mount(own) as call:
        table = call(Path("/proc/thread-self/mountinfo").read_text)
    assert str(own) in table and "/dev/shm" in table and str(other) not in table
