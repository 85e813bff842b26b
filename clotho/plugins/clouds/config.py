"""The configurations of sandboxes in clouds: what a run asks of them. Accounts are the workers' affair."""

import re
from ipaddress import IPv4Network
from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator, Field, field_validator, model_validator

from clotho.plugins.containers.config import require_apart
from clotho.sandbox.config import BackendConfig
from clotho.sandbox.places import AGENT_HOME, PATH, TMP, WORKSPACE

DOMAIN = re.compile(r"(\*\.)?([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\.)+[a-z]([a-z0-9-]{0,61}[a-z0-9])?")


def _host(value: str) -> str:
    """A domain, `*.` and a domain, or IPv4 addresses as a network."""
    if DOMAIN.fullmatch(value):
        return value
    try:
        return str(IPv4Network(value))
    except ValueError:
        raise ValueError(
            f"{value!r} is no domain in small letters, no `*.` and a domain, and no IPv4 network"
        ) from None


class CloudConfig(BackendConfig):
    """Settings that all clouds share."""

    image_fields: ClassVar = ("image", "template")
    image: str | None = Field(default=None, min_length=1, max_length=400)
    """The image that sandboxes begin from, as `docker pull` takes it."""
    workdir: str = WORKSPACE
    """The workspace's path."""
    home: str = AGENT_HOME
    """The path of the agent's home."""
    user: str | None = Field(default=None, pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]*$")
    """The user of commands, by name or id; None: root."""
    network: (
        Literal["none", "default"]
        | Annotated[tuple[Annotated[str, AfterValidator(_host)], ...], Field(min_length=1)]
    ) = "none"
    """Whether commands have the cloud's network: unfiltered, or to a list of domains and IPv4 networks alone."""

    def __str__(self) -> str:
        return f"{self.kind} ({self.image})"

    @property
    def domains(self) -> tuple[str, ...]:
        """The domains among the hosts of `network`."""
        return tuple(host for host in self._hosts if DOMAIN.fullmatch(host))

    @property
    def networks(self) -> tuple[str, ...]:
        """The networks among the hosts of `network`, as `1.2.3.4/32`."""
        return tuple(host for host in self._hosts if not DOMAIN.fullmatch(host))

    @property
    def _hosts(self) -> tuple[str, ...]:
        return () if isinstance(self.network, str) else self.network

    @field_validator("workdir", "home")
    @classmethod
    def _is_path(cls, value: str) -> str:
        if PATH.fullmatch(value) is None:
            raise ValueError(f"{value!r} is no absolute path of a folder")
        return value

    @model_validator(mode="after")
    def _apart(self) -> "CloudConfig":
        require_apart(self.workdir, self.home, TMP)
        return self


class ModalConfig(CloudConfig):
    """Sandboxes at Modal."""

    kind: Literal["modal"] = "modal"
    image: str = Field(min_length=1, max_length=400)
    """The image that sandboxes begin from, as `docker pull` takes it, for linux/amd64."""
    cpus: float | None = Field(default=None, gt=0)
    """Processors of a sandbox, reserved and at most; None: Modal's default."""
    region: str | None = None
    """The region of sandboxes, by Modal's name; None: anywhere."""


class E2bConfig(CloudConfig):
    """Sandboxes at E2B."""

    kind: Literal["e2b"] = "e2b"
    template: str | None = Field(default=None, min_length=1, max_length=200)
    """A template that there is, in place of `image`: its memory and processors are what it was built with."""
    cpus: int = Field(default=2, ge=1, le=64)
    """Processors of a sandbox that is made from an `image`."""

    def __str__(self) -> str:
        return f"{self.kind} ({self.image or self.template})"

    @model_validator(mode="after")
    def _one_image(self) -> "E2bConfig":
        if (self.image is None) == (self.template is None):
            raise ValueError("give either `image` or `template`")
        return self


class DaytonaConfig(CloudConfig):
    """Sandboxes at Daytona."""

    kind: Literal["daytona"] = "daytona"
    image: str = Field(min_length=1, max_length=400)
    """The image that sandboxes begin from, as `docker pull` takes it."""
    cpus: int = Field(default=1, ge=1, le=64)
    """Processors of a sandbox."""
