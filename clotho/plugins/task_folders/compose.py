"""docker-compose.yaml of a task: one service, which says what [environment] would say."""

from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationError, field_validator

from clotho.errors import InvalidInput
from clotho.plugins.task_folders.task_file import SERVICE, Table, User
from clotho.untrusted import Unreadable, load_yaml

LARGEST = 256 << 10
"""Bytes of a compose file."""


class Build(Table):
    context: Literal[".", "./"] = "."
    dockerfile: Literal["Dockerfile", "./Dockerfile"] = "Dockerfile"


class Service(Table):
    """The keys that are honoured; `command` is replaced, as Harbor does."""

    image: str | None = None
    build: Build | None = None
    environment: dict[str, str] = {}
    working_dir: str | None = Field(default=None, pattern="^/")
    user: User | None = None
    network_mode: Literal["none"] | None = None
    command: Any = None

    @field_validator("build", mode="before")
    @classmethod
    def _context(cls, value: Any) -> Any:
        return {"context": value} if isinstance(value, str) else value

    @field_validator("environment", mode="before")
    @classmethod
    def _as_table(cls, value: Any) -> Any:
        if not isinstance(value, list):
            return value
        if not all(isinstance(each, str) and "=" in each for each in value):
            raise ValueError("write NAME=VALUE")
        return dict(each.split("=", 1) for each in value)

    @field_validator("environment")
    @classmethod
    def _literal(cls, value: dict[str, str]) -> dict[str, str]:
        # Compose would fill in any variable of the host; [environment] env has rules for those
        if templates := [name for name, text in value.items() if "$" in text]:
            raise ValueError(f"{', '.join(templates)}: put variables into [environment] env")
        return value


class Compose(Table):
    version: str | None = None
    services: dict[str, Service]


def read_compose(path: Path) -> Service:
    """The one service; raises InvalidInput that names what isn't supported."""
    with path.open("rb") as file:
        content = file.read(LARGEST + 1)
    if len(content) > LARGEST:
        raise InvalidInput(f"environment/{path.name} has more than {LARGEST >> 10} KiB")
    try:
        compose = Compose.model_validate(load_yaml(content))
    except (Unreadable, ValidationError) as error:
        raise InvalidInput(f"environment/{path.name}: {_reasons(error)}") from error
    others = [name for name in compose.services if name != SERVICE]
    if others:
        raise InvalidInput(f"environment/{path.name}: services besides {SERVICE}: {', '.join(others)}")
    if SERVICE not in compose.services:
        raise InvalidInput(f"environment/{path.name}: there is no service {SERVICE}")
    return compose.services[SERVICE]


def _reasons(error: Exception) -> str:
    if not isinstance(error, ValidationError):
        return f"not YAML: {error}"
    return "; ".join(
        f"{'.'.join(map(str, each['loc']))}: "
        + ("not supported" if each["type"] == "extra_forbidden" else each["msg"])
        for each in error.errors()
    )
