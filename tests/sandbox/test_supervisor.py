"""The program that is shipped, and its beginning; what it does is in the conformance tests."""

import os
import subprocess
from pathlib import Path

import pytest

from clotho.errors import IsolationUnavailable
from clotho.sandbox.supervisor import ARCHITECTURES, supervisor_path
from clotho.sandbox.supervisor.build import build


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_shipped_program_is_what_the_sources_build(architecture: str, tmp_path: Path) -> None:
    build(architecture, tmp_path / "supervisor")
    assert (tmp_path / "supervisor").read_bytes() == supervisor_path(architecture).read_bytes()
    assert os.access(supervisor_path(architecture), os.X_OK)


def test_other_machines_are_refused() -> None:
    with pytest.raises(IsolationUnavailable, match="riscv64"):
        supervisor_path("riscv64")
    assert supervisor_path("arm64") == supervisor_path("aarch64")


def test_one_supervisor_per_control_directory(tmp_path: Path) -> None:
    directory = os.open(tmp_path, os.O_RDONLY)
    ready, tell = os.pipe()

    def started() -> subprocess.Popen[bytes]:
        argv = [str(supervisor_path()), str(directory), str(tell), "60", "0", "0"]
        return subprocess.Popen(argv, pass_fds=(directory, tell), stderr=subprocess.DEVNULL)

    with started() as first:
        incarnation = os.read(ready, 64)
        with started() as second:
            assert second.wait(5) != 0
        assert (tmp_path / "alive").read_bytes() == incarnation
        (tmp_path / "q").write_text("stop\n")
        assert first.wait(5) == 0
    for descriptor in (directory, ready, tell):
        os.close(descriptor)


def test_needs_nothing_of_the_system() -> None:
    """Static: it runs in any image."""
    content = supervisor_path().read_bytes()
    assert b"ld-linux" not in content
    assert b"ld-musl" not in content
    assert len(content) < 100_000
