"""What `clotho tasks check` says of images that it can't have."""

from pathlib import Path

import pytest

from clotho.cli.tasks import Images
from clotho.config import SandboxSettings
from clotho.environment.instances import EnvironmentProcesses
from clotho.rollouts.run import RunManifest
from clotho.runs.request import run_manifest
from tests.tasks.making import make_task

SETTINGS = SandboxSettings(docker_host="unix:///nowhere.sock")


def manifest(folder: Path, **config: bool) -> RunManifest:
    return run_manifest("task_folders", "run", "nop", overrides={"path": str(folder), **config})


@pytest.mark.parametrize(("host_programs", "told"), [(False, True), (True, False)])
async def test_an_image_that_cannot_be_had_now_is_told_before_anything_begins(
    tmp_path: Path, host_programs: bool, told: bool
) -> None:
    make_task(tmp_path / "task")
    order = manifest(tmp_path, host_programs=host_programs)
    async with EnvironmentProcesses() as environments, environments.enumeration(order) as environment:
        (item,) = await environment.next_items(2)
        fault = await Images(SETTINGS).fault_of(environment, item)
    assert (fault is not None and "unix:///nowhere.sock" in fault) == told
