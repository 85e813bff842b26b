"""The kinds of sandbox backend: a configuration of each, and how they are opened on a worker's host.

A backend is a class with the methods of `SandboxBackend` (`clotho/sandbox/backend.py`). One of another package is
named as `module:Class` by workers and runs. One that ships has a configuration in `AnyConfig`, and its
construction in `own_backend`. See `docs/how-to/sandbox-backend.md`.
"""

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast, get_args

from pydantic import BeforeValidator, Field, TypeAdapter, ValidationError

from clotho.config import SandboxSettings, variable
from clotho.errors import InvalidInput
from clotho.frozen_model import FrozenModel
from clotho.imported import imported
from clotho.plugins.apptainer.config import ApptainerConfig
from clotho.plugins.clouds.config import DaytonaConfig, E2bConfig, ModalConfig
from clotho.plugins.containers.config import DockerConfig
from clotho.plugins.ssh.config import SshConfig

if TYPE_CHECKING:
    from clotho.sandbox.backend import SandboxBackend
    from clotho.sandbox.backends import Backends


class LocalConfig(FrozenModel):
    """Isolated sandboxes on the worker's own host."""

    kind: Literal["local"] = "local"

    @property
    def name(self) -> str:
        return self.kind

    def __str__(self) -> str:
        return self.name


class CustomConfig(FrozenModel):
    """Sandboxes of a class outside this library."""

    kind: Literal["custom"] = "custom"
    name: str = Field(pattern=r"^[\w.]+:\w+$")
    """The class, as `module:Class`: a SandboxBackend that is constructed with a folder of this host."""

    def __str__(self) -> str:
        return self.name


def _from_name(value: object) -> object:
    if not isinstance(value, str):
        return value
    if value.startswith("{"):
        return json.loads(value)
    return {"kind": value} if value in KINDS else CustomConfig(name=value)


OfImages = DockerConfig | ApptainerConfig | ModalConfig | E2bConfig | DaytonaConfig
AnyConfig = LocalConfig | SshConfig | OfImages | CustomConfig
BackendConfig = Annotated[
    Annotated[
        LocalConfig
        | SshConfig
        | DockerConfig
        | ApptainerConfig
        | ModalConfig
        | E2bConfig
        | DaytonaConfig
        | CustomConfig,
        Field(discriminator="kind"),
    ],
    BeforeValidator(_from_name),
]
"""A backend's configuration; also validated from its name, `local`, `ssh` or `module:Class`, and from JSON."""
WITH_IMAGES = tuple(kind.model_fields["kind"].default for kind in get_args(OfImages))
KINDS = ("local", *WITH_IMAGES, "ssh")
_CONFIG: TypeAdapter[AnyConfig] = TypeAdapter(BackendConfig)


def chosen_backend(sandbox: str | None, image: str | None, before: AnyConfig) -> AnyConfig:
    """The configuration that a run's settings ask for: a backend's name or configuration, and an image.

    `before` is what they change. Raises InvalidInput for what makes no backend.
    """
    try:
        asked: Any = before if sandbox is None else _from_name(sandbox)
    except json.JSONDecodeError as error:
        raise InvalidInput(f"the configuration of a sandbox backend {sandbox} isn't JSON: {error}") from error
    except ValidationError as error:
        raise InvalidInput(
            f"no sandbox backend {sandbox!r}: give {', '.join(KINDS)}, or module:Class"
        ) from error
    fields = asked if isinstance(asked, dict) else asked.model_dump()
    kind = fields.get("kind")
    if image is not None and kind not in WITH_IMAGES:
        raise InvalidInput(
            f"sandboxes of {sandbox or before.name} have no image: give --sandbox docker with --image"
        )
    if image is not None:
        begun_from = ("dockerfile", "template")
        fields = {**{name: value for name, value in fields.items() if name not in begun_from}, "image": image}
    if kind in WITH_IMAGES and fields == {"kind": kind}:
        raise InvalidInput(f"sandboxes of {kind} begin from an image: give --image NAME")
    try:
        return _CONFIG.validate_python(fields)
    except ValidationError as error:
        said = "; ".join(f"{'.'.join(map(str, each['loc'][1:]))}: {each['msg']}" for each in error.errors())
        raise InvalidInput(f"sandboxes of {fields.get('kind')}: {said}") from error


def open_backend(settings: SandboxSettings, folder: Path, *, worker_elsewhere: bool = False) -> "Backends":
    """The backend that this host's settings name, over `folder`, and containers where a run asks for them.

    `worker_elsewhere`: it is served to a worker of another machine, whose settings tell how long leases are.
    Raises InvalidInput where the settings name none, or it can't be imported. No container engine is looked for
    before a sandbox asks for one.
    """
    from clotho.plugins.apptainer.backend import ApptainerBackend
    from clotho.plugins.clouds.opened import Account, ImportedMachines
    from clotho.plugins.containers.backend import ContainerBackend
    from clotho.plugins.containers.machine import ContainerMachine
    from clotho.plugins.containers.relay.backend import RelayedBackend
    from clotho.plugins.containers.relay.machine import Machine
    from clotho.sandbox.backends import Backends

    address = settings.docker_host or variable("DOCKER_HOST")
    containers = ContainerBackend(folder / "containers", address, settings.warm)
    clouds: dict[str, Account] = {"modal": settings.modal, "e2b": settings.e2b, "daytona": settings.daytona}
    machines = [
        ContainerMachine(address, folder / "relayed" / "locks"),
        *(cast(Machine, ImportedMachines(kind, account)) for kind, account in clouds.items()),
    ]
    relayed = [RelayedBackend(folder / "relayed" / machine.kind, machine) for machine in machines]
    apptainer = ApptainerBackend(folder / "apptainer")
    lease_seconds = None if worker_elsewhere else settings.lease_seconds
    return Backends(own_backend(settings, folder), containers, [apptainer, *relayed], lease_seconds)


def own_backend(settings: SandboxSettings, folder: Path) -> "SandboxBackend":
    """The backend that the settings name, without containers and clouds; raises InvalidInput as `open_backend`."""
    if settings.backend == "local":
        from clotho.sandbox.local.backend import LocalBackend

        return LocalBackend(folder, disk_budget_mb=settings.disk_budget_mb)
    if settings.backend == "ssh":
        try:
            from clotho.plugins.ssh.backend import SshBackend
        except ModuleNotFoundError as error:
            raise InvalidInput("sandboxes through ssh need: pip install 'clotho-rollouts[ssh]'") from error
        return SshBackend(settings.ssh, folder.name, settings.lease_seconds)
    try:
        name = CustomConfig(name=settings.backend).name
    except ValidationError as error:
        raise InvalidInput(
            f"no sandbox backend {settings.backend!r}: give local, ssh, or module:Class"
        ) from error
    backend: SandboxBackend = imported(name, "the sandbox backend")(folder)
    return backend


class BackendsBeside:
    """The backends of other stores whose sandboxes this user has had here: a folder for each, beside `folder`.

    Each is opened once: its engine and its clouds are connected to at the first look alone. Hosts that are reached
    through ssh look after those of other stores themselves.
    """

    def __init__(self, settings: SandboxSettings, folder: Path) -> None:
        self._settings = settings
        if settings.backend == "ssh":
            self._settings = settings.model_copy(update={"backend": "local"})
        self._folder = folder
        self._opened: dict[Path, SandboxBackend] = {}

    def __call__(self) -> list["SandboxBackend"]:
        """Those that there are now."""
        others = [each for each in self._folder.parent.glob("*") if each != self._folder and _is_mine(each)]
        self._opened = {each: self._opened.get(each) or open_backend(self._settings, each) for each in others}
        return list(self._opened.values())


def _is_mine(folder: Path) -> bool:
    try:
        return folder.stat().st_uid == os.getuid()
    except FileNotFoundError:
        return False
