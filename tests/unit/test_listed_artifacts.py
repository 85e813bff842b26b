"""Artifacts where the sandbox can't list them."""

from dataclasses import dataclass
from typing import Any

import pytest

from clotho.errors import HostUnavailable, WorkspaceRefused
from clotho.plugins.task_folders.artifacts import read_artifacts


@dataclass
class FullSandbox:
    """No command has room for its files."""

    host_is_full: bool

    def terminal(self, command: str, timeout: float = 180, /) -> dict[str, Any]:
        return {"output": "", "exit_code": 1, "error": None}

    def read_bytes(self, path: str, max_bytes: int = 0, /) -> bytes | None:
        return None

    def write_bytes(self, path: str, content: bytes, /) -> None:
        if self.host_is_full:
            raise HostUnavailable("the disk is full")


def test_without_room_for_the_listing_none_counts_as_missing() -> None:
    with pytest.raises(WorkspaceRefused, match="can't be listed: exit code 1"):
        read_artifacts(FullSandbox(host_is_full=False), (), ())
    with pytest.raises(HostUnavailable):
        read_artifacts(FullSandbox(host_is_full=True), (), ())
