"""Options of containers that an engine can't have: refused at once, by name."""

import json
from typing import Any

import pytest
from docker.errors import APIError

from clotho.errors import InvalidInput
from clotho.plugins.containers.backend import ContainerBackend
from clotho.plugins.containers.engine import engine_failures
from clotho.sandbox.registry import LocalConfig, chosen_backend
from tests.machine_image import IMAGE
from tests.sandbox.test_containers import containers, spec_of

__all__ = ["containers"]


async def test_gpus_are_refused_where_the_engine_ignores_them(
    containers: ContainerBackend, lease: str
) -> None:
    """As podman's socket does."""
    with pytest.raises(InvalidInput, match="can't give sandboxes GPUs"):
        await containers.create(lease, spec_of(gpus="all"))
    assert not containers.holds(lease)


def test_gpus_are_refused_where_docker_has_no_driver_for_them() -> None:
    said = 'could not select device driver "" with capabilities: [[gpu]]'
    with pytest.raises(InvalidInput, match="can't give sandboxes GPUs"), engine_failures("a container"):
        raise APIError("500 Server Error", explanation=said)


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"network": {"allow": ["example.org"]}}, "no engine keeps to a list of hosts"),
        ({"network": ["example.org"]}, "no engine keeps to a list of hosts"),
        ({"userns": "auto"}, "an engine maps users for all of its containers"),
        ({"checkpoint": "commit", "read_only": True}, "commits are of a system that commands can change"),
        ({"checkpoint": "commit", "runtime": "runsc"}, "leave out read_only, relay and runtime"),
        ({"gpus": -1}, "gpus"),
    ],
)
def test_options_that_no_engine_has_are_refused_by_name(asked: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidInput, match=said):
        chosen_backend(json.dumps({"kind": "docker", "image": IMAGE, **asked}), None, LocalConfig())


@pytest.mark.parametrize("workdir", ["/etc", "/var", "/proc", "/dev/x", "/sys", "/run", "/bin"])
async def test_folders_that_an_engine_can_not_mount_are_refused_at_once(
    containers: ContainerBackend, lease: str, workdir: str
) -> None:
    """Of these, /bin is a link to another folder in many images."""
    with pytest.raises(InvalidInput, match="give another workdir"):
        await containers.create(lease, spec_of(workdir=workdir))
    assert not containers.holds(lease)


async def test_a_folder_with_a_folder_in_memory_is_a_workspace_without_that(
    containers: ContainerBackend, lease: str
) -> None:
    await containers.create(lease, spec_of(workdir="/var", tmpfs={}))
    await containers.destroy(lease)
