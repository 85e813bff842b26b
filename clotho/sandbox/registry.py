"""The kinds of sandbox backend: a configuration of each, and how it is opened on a worker's host."""

import importlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import BeforeValidator, Field, TypeAdapter, ValidationError

from clotho.config import SandboxSettings
from clotho.errors import InvalidInput
from clotho.frozen_model import FrozenModel

if TYPE_CHECKING:
    from clotho.sandbox.backend import SandboxBackend


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
    return LocalConfig() if value == "local" else CustomConfig(name=value)


BackendConfig = Annotated[
    Annotated[LocalConfig | CustomConfig, Field(discriminator="kind")], BeforeValidator(_from_name)
]
"""A backend's configuration; also validated from its name, `local` or `module:Class`."""
_CONFIG: TypeAdapter[LocalConfig | CustomConfig] = TypeAdapter(BackendConfig)


def backend_config(name: str) -> LocalConfig | CustomConfig:
    """The configuration of the backend called `name`; raises InvalidInput for what names none."""
    try:
        return _CONFIG.validate_python(name)
    except ValidationError as error:
        raise InvalidInput(f"no sandbox backend {name!r}: give local, or module:Class") from error


def open_backend(settings: SandboxSettings, folder: Path) -> "SandboxBackend":
    """The backend that this host's settings name, over `folder`. Raises InvalidInput where it can't be imported."""
    match backend_config(settings.backend):
        case LocalConfig():
            from clotho.sandbox.local.backend import LocalBackend

            return LocalBackend(folder, disk_budget_mb=settings.disk_budget_mb)
        case CustomConfig(name=name):
            return _imported(name)(folder)


def _imported(name: str) -> "Callable[[Path], SandboxBackend]":
    module, _, attribute = name.partition(":")
    try:
        found: Callable[[Path], SandboxBackend] = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise InvalidInput(f"the sandbox backend {name} can't be imported: {error}") from error
    return found


def backends_beside(settings: SandboxSettings, folder: Path) -> list["SandboxBackend"]:
    """The backends of other stores whose sandboxes this user has had here: a folder for each, beside `folder`."""
    others = (each for each in folder.parent.glob("*") if each != folder)
    return [open_backend(settings, each) for each in others if _is_mine(each)]


def _is_mine(folder: Path) -> bool:
    try:
        return folder.stat().st_uid == os.getuid()
    except FileNotFoundError:
        return False
