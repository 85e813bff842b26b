"""The configurations of sandboxes in clouds: what a run asks of them. Accounts are the workers' affair."""

from typing import Literal

from pydantic import Field, field_validator, model_validator

from clotho.frozen_model import FrozenModel
from clotho.sandbox.containers.config import require_apart
from clotho.sandbox.places import AGENT_HOME, PATH, TMP, WORKSPACE


class CloudConfig(FrozenModel):
    """Settings that all clouds share."""

    kind: str
    image: str | None = Field(default=None, min_length=1, max_length=400)
    """The image that sandboxes begin from, as `docker pull` takes it."""
    workdir: str = WORKSPACE
    """The workspace's path."""
    home: str = AGENT_HOME
    """The path of the agent's home."""
    user: str | None = Field(default=None, pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]*$")
    """The user of commands, by name or id; None: root."""
    network: Literal["none", "default"] = "none"
    """Whether commands have the cloud's network, unfiltered."""

    @property
    def name(self) -> str:
        return self.kind

    def __str__(self) -> str:
        return f"{self.kind} ({self.image})"

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
