"""The supervisor as its sources build it: `make test-supervisor`."""

import os
from pathlib import Path

import pytest

from clotho.sandbox.supervisor import ARCHITECTURES, supervisor_path
from clotho.sandbox.supervisor.build import build


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_shipped_program_is_what_the_sources_build(architecture: str, tmp_path: Path) -> None:
    build(architecture, tmp_path / "supervisor")
    assert (tmp_path / "supervisor").read_bytes() == supervisor_path(architecture).read_bytes()
    assert os.access(supervisor_path(architecture), os.X_OK)
