"""What `clotho tasks check` says of images that it can't have."""

import asyncio
from pathlib import Path

import pytest

from clotho.config import SandboxSettings
from clotho.environment.instances import EnvironmentProcesses
from clotho.plugins.task_folders.command import Images
from clotho.rollouts.run import RunManifest
from clotho.runs.request import run_manifest
from environments.task_folders import TaskFolders, TaskFoldersConfig
from tests.cli.command import clotho
from tests.tasks.making import IMAGE, make_task

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


def test_tests_get_the_time_that_their_task_gives_them(tmp_path: Path) -> None:
    make_task(tmp_path / "task", IMAGE + "[verifier]\ntimeout_sec = 7200\n")
    environment = TaskFolders(TaskFoldersConfig(path=str(tmp_path)))
    asyncio.run(environment.setup())
    item = asyncio.run(environment.get_next_item())
    assert item is not None
    assert (environment.verification_seconds(item) or 0) > 7200


@pytest.mark.slow
@pytest.mark.parametrize(("verifier", "voided"), [("Careful", []), ("Careless", ["empty", "huge"])])
async def test_a_verifier_must_give_a_reward_for_answers_that_it_can_not_read(
    tmp_path: Path, verifier: str, voided: list[str]
) -> None:
    environment = f"tests.environments.asked_numbers:{verifier}"
    done = await clotho("tasks", "check", environment, "--logs", tmp_path)
    assert done.status == bool(voided), done.output + done.error
    rows = [line.split() for line in done.output.splitlines() if "number-7 " in line]
    assert [row[1] for row in rows] == voided, done.output
    assert done.output.count("a policy that leaves this voids") == len(voided), done.output
    spoiled = {
        kind: (tmp_path / "number-7" / f"{kind}.log").read_text() for kind in ("empty", "huge", "fifo")
    }
    assert all("while IFS= read -r file" in log for log in spoiled.values())
