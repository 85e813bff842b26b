"""The sandbox that a task asks for."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from pydantic import ValidationError

from clotho.errors import InvalidInput
from clotho.frozen_model import field_errors
from clotho.plugins.containers.config import DockerConfig
from clotho.plugins.task_folders import task_file
from clotho.plugins.task_folders.folder import Task
from clotho.plugins.task_folders.task_file import NetworkMode
from clotho.sandbox.healthcheck import Healthcheck
from clotho.sandbox.item import ItemSandbox
from clotho.sandbox.places import PATH, WORKSPACE, check_places

FOLDERS = ("/logs", "/solution", "/tests")
"""Folders that the agent, its solution and its verifier find in every sandbox."""
EMPTIED = ("/tests", "/logs/verifier")
"""Those of them that are emptied for the tests."""


@dataclass(frozen=True)
class Choices:
    """A run's choices for tasks that say nothing."""

    network: Literal["none", "public"] = "none"
    verify_in: Literal["image", "container"] = "image"

    def network_of(self, asked: NetworkMode | None) -> Literal["none", "default"]:
        public = self.network == "public" if asked is None else asked == "public"
        return "default" if public else "none"


USUAL = Choices()


def container_sandbox(task: Task, choices: Choices = USUAL) -> ItemSandbox:
    """A container of the task's image, which is built from its Dockerfile where it names none."""
    container = task.file.environment
    config = DockerConfig(
        image=task.image,
        dockerfile=None if task.image else str((task.path / "environment" / "Dockerfile").resolve()),
        workdir=task.workdir,
        image_places=True,
        user=task.user,
        network=choices.network_of(task.network),
        verify_in=task.file.metadata.clotho.verify_in or choices.verify_in,
        cpus=container.cpus,
        gpus=container.gpus or 0,
    )
    return _asked(task).model_copy(update={"backend": config})


def grading_sandbox(task: Task, choices: Choices = USUAL) -> ItemSandbox:
    """A container without anything of the agent's: that of a separate verifier, else another like the agent's."""
    verifier = task.file.verifier
    if not verifier.separate:
        return container_sandbox(task, choices)
    own, container = verifier.environment, verifier.environment or task.file.environment
    dockerfile = task.grading_dockerfile or (None if task.image else task.path / "environment" / "Dockerfile")
    image = task.grading_image or (None if task.grading_dockerfile else task.image)
    config = DockerConfig(
        image=image,
        dockerfile=None if image or dockerfile is None else str(dockerfile.resolve()),
        # an image that holds the tests needn't have the agent's working directory
        workdir=own.workdir if own and (own.workdir or task.bundles_tests) else task.workdir,
        image_places=True,
        user=verifier.user,
        network=choices.network_of(task.file.grading_network),
        cpus=container.cpus,
        gpus=container.gpus or 0,
    )
    asked = _limits(task, container, task.variables if own is None else own.env)
    return asked.model_copy(update={"backend": config})


def local_grading_sandbox(task: Task) -> ItemSandbox:
    """A local sandbox in place of the container of `grading_sandbox`."""
    verifier = task.file.verifier
    if not verifier.separate:
        return local_sandbox(task)
    container = verifier.environment or task.file.environment
    asked = _limits(task, container, task.variables if verifier.environment is None else container.env)
    return asked.model_copy(update={"aliases": _aliases(task)})


def local_sandbox(task: Task) -> ItemSandbox:
    """A local sandbox in place of the task's container, over the host's own programs.

    Raises InvalidInput that names what only a container can have.
    """
    if faults := [*_of_containers(task)]:
        raise InvalidInput(f"task {task.path.name}, without containers: {', '.join(faults)}")
    return _asked(task).model_copy(update={"aliases": _aliases(task)})


def _aliases(task: Task) -> dict[str, str]:
    return {} if task.workdir in (None, WORKSPACE) else {task.workdir: WORKSPACE}


def check_sandbox(task: Task) -> None:
    """Raises InvalidInput for what no container can have, such as a working directory within another folder."""
    try:
        container_sandbox(task)
        grading_sandbox(task)
    except ValidationError as error:
        raise InvalidInput(f"task {task.path.name}: {field_errors(error, 'its container')}") from error
    workdir = task.workdir or task.dockerfile_workdir
    if workdir is not None and any(f"{workdir}/".startswith(f"{folder}/") for folder in EMPTIED):
        raise InvalidInput(f"task {task.path.name}: workdir: {workdir} is emptied before the tests run")
    if workdir not in (None, "/") and PATH.fullmatch(workdir) is None:
        raise InvalidInput(f"task {task.path.name}: workdir: {workdir!r} can't be a folder of a sandbox")


def _asked(task: Task) -> ItemSandbox:
    asked = _limits(task, task.file.environment, task.variables)
    return asked.model_copy(update={"keep_services": task.file.metadata.clotho.keep_services})


def _limits(task: Task, container: task_file.Container, variables: dict[str, str]) -> ItemSandbox:
    return ItemSandbox(
        memory_mb=container.memory_limit_mb,
        disk_mb=container.storage_limit_mb,
        writable_roots=FOLDERS,
        variables=variables,
        readable=task.readable,
        healthcheck=_healthcheck(container.healthcheck),
    )


def _healthcheck(asked: task_file.Healthcheck | None) -> Healthcheck | None:
    if asked is None:
        return None
    return Healthcheck(
        command=asked.command,
        interval=asked.interval_sec,
        timeout=asked.timeout_sec,
        start_period=asked.start_period_sec,
        start_interval=asked.start_interval_sec,
        retries=asked.retries,
    )


def _of_containers(task: Task) -> Iterator[str]:
    if task.network not in (None, "no-network"):
        yield f"network {task.network}"
    if task.file.environment.cpus is not None:
        yield "environment.cpus"
    if task.file.environment.gpus:
        yield "environment.gpus"
    if task.user is not None or (task.file.verifier.separate and task.file.verifier.user is not None):
        yield "a user"
    if task.bundles_tests:
        yield "an image with the tests"
    try:
        check_places(FOLDERS, _aliases(task))
    except ValueError as error:
        yield f"its workdir ({error})"
