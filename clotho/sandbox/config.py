"""A run's request to a sandbox backend: the configuration of its kind, which a plugin may bring."""

import json
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field, SerializeAsAny, ValidationError

from clotho.errors import InvalidInput
from clotho.frozen_model import FrozenModel, field_errors
from clotho.plugin import SandboxKind, load, plugins


class BackendConfig(FrozenModel):
    """Base of the configurations of sandboxes; each has a `kind` of its own."""

    image_fields: ClassVar[tuple[str, ...]] = ()
    """Fields that say what sandboxes begin from, `image` first; none for sandboxes without an image."""
    kind: str

    @property
    def name(self) -> str:
        return self.kind

    def __str__(self) -> str:
        return self.name


class LocalConfig(BackendConfig):
    """Isolated sandboxes on the worker's own host."""

    kind: Literal["local"] = "local"


class CustomConfig(BackendConfig):
    """Sandboxes of a class outside this library."""

    kind: Literal["custom"] = "custom"
    class_name: str = Field(pattern=r"^[\w.]+:\w+$")
    """The class, as `module:Class`: a SandboxBackend that is constructed with a folder of this host."""

    @property
    def name(self) -> str:
        return self.class_name


def sandbox_kinds() -> dict[str, SandboxKind]:
    """The kinds of sandbox that plugins bring, by name."""
    return {name: kind for plugin in plugins().values() for name, kind in plugin.sandboxes.items()}


def config_class(kind: object) -> type[BackendConfig]:
    """The class of a kind's configurations. Raises ValueError for a kind that isn't known."""
    known: dict[object, type[BackendConfig]] = {"local": LocalConfig, "custom": CustomConfig}
    if kind not in known:
        if kind not in (brought := sandbox_kinds()):
            raise ValueError(
                f"no sandbox backend {kind!r}: give {', '.join(['local', *brought])}, or module:Class"
            )
        # imported only when a configuration names the kind: runs of other kinds don't load the plugin
        known[kind] = load(brought[str(kind)].config)
    return known[kind]


def _from_name(value: object) -> object:
    """Fields of the configuration that `value` names: a backend's name, `module:Class` or JSON."""
    if not isinstance(value, str):
        return value
    if value.startswith("{"):
        return json.loads(value)
    return {"kind": "custom", "class_name": value} if ":" in value else {"kind": value}


def _validated(value: object) -> BackendConfig:
    fields = _from_name(value)
    if isinstance(fields, BackendConfig):
        return fields
    if not isinstance(fields, dict):
        raise ValueError("give a sandbox backend by its name, or as an object with its kind")
    return config_class(fields.get("kind")).model_validate(fields)


AnyBackendConfig = Annotated[SerializeAsAny[BackendConfig], BeforeValidator(_validated)]
"""A backend's configuration; also validated from its name, such as `local` or `module:Class`, and from JSON."""


def chosen_backend(sandbox: str | None, image: str | None, before: BackendConfig) -> BackendConfig:
    """The configuration that a run's settings ask for: a backend's name or configuration, and an image.

    The settings change `before`. Raises InvalidInput where they name no backend.
    """
    try:
        asked: Any = before if sandbox is None else _from_name(sandbox)
        fields = asked if isinstance(asked, dict) else asked.model_dump()
        kind = fields.get("kind")
        of_images = config_class(kind).image_fields
    except json.JSONDecodeError as error:
        raise InvalidInput(f"the configuration of a sandbox backend {sandbox} isn't JSON: {error}") from error
    except ValueError as error:
        raise InvalidInput(str(error)) from error
    if image is not None and not of_images:
        raise InvalidInput(
            f"sandboxes of {sandbox or before.name} have no image: give --sandbox docker with --image"
        )
    if image is not None:
        # a new image takes the place of whatever the sandbox began from: of a Dockerfile, too
        kept = {name: value for name, value in fields.items() if name not in of_images}
        fields = {**kept, "image": image}
    if of_images and fields == {"kind": kind}:
        raise InvalidInput(f"sandboxes of {kind} begin from an image: give --image NAME")
    try:
        return config_class(kind).model_validate(fields)
    except ValidationError as error:
        raise InvalidInput(f"sandboxes of {kind}: {field_errors(error)}") from error
