"""The configuration of sandboxes in containers."""

from collections.abc import Iterable, Mapping
from typing import Annotated, Literal

from pydantic import Field, field_validator, model_validator

from clotho.frozen_model import FrozenModel
from clotho.sandbox.places import AGENT_HOME, PATH

TMPFS = {
    "/var/tmp": "rw,noexec,nosuid,nodev,size=256m,mode=1777",
    "/run": "rw,noexec,nosuid,nodev,size=64m,mode=1777",
}
OF_THE_ENGINE = ("/etc/hostname", "/etc/hosts", "/etc/mtab", "/etc/resolv.conf", "/dev", "/proc", "/sys")
"""Made by the engine in every container."""

REFUSED = {
    "userns": "an engine maps users for all of its containers: set it up so, or run it without root",
}
"""Fields that a user of containers may look for, and what there is in their place."""
NO_ALLOW_LIST = (
    "no engine keeps to a list of hosts: give `none`, or `default` on a host whose own firewall or proxy does"
)


class DockerConfig(FrozenModel):
    """Sandboxes in containers of the engine on the worker's host, which DOCKER_HOST names: Docker or podman."""

    kind: Literal["docker"] = "docker"
    image: str | None = Field(default=None, min_length=1, max_length=400)
    """The image that sandboxes begin from, by name or id."""
    dockerfile: str | None = None
    """A Dockerfile on the worker's host, from whose folder the image is built, in place of `image`."""
    pull: Literal["missing", "always", "never"] = "missing"
    """When the image is pulled from its registry."""
    platform: str | None = Field(default=None, pattern=r"^[a-z0-9]+/[a-z0-9]+(/[a-z0-9]+)?$")
    """The platform of the image to pull, such as linux/arm64; None: the engine's own."""
    workdir: str | None = None
    """The workspace's path; None: the image's working directory, or /work where it has none."""
    home: str = AGENT_HOME
    """The path of the agent's home."""
    image_places: bool = False
    """Whether places are those of a plain container: HOME the image's own for the user, in place of `home`, and the
    workspace `/` where the image has no working directory."""
    user: str | None = Field(default=None, pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]*$")
    """The user of commands, by name or id; None: the image's."""
    network: Literal["none", "default"] = "none"
    """Whether commands have the engine's default network."""
    cpus: float | None = Field(default=None, gt=0)
    """Processors' time that a sandbox may use; None: all."""
    gpus: Annotated[int, Field(ge=0)] | Literal["all"] = 0
    """GPUs of the engine's host that commands can use. Sandboxes may share one."""
    read_only: bool = False
    """Whether commands can write to the workspace, the home, /tmp and writable roots alone."""
    tmpfs: dict[str, str] = TMPFS
    """Folders in memory and their mount options. Neither checkpoints nor verifiers have what is in them."""
    relay: bool = False
    """Whether the engine is taken to share no files with the worker's host, as one on another machine is."""
    runtime: str | None = Field(default=None, pattern=r"^[A-Za-z0-9._/-]+$")
    """The engine's runtime, such as runsc, whose sandboxes are reached as with `relay`; None: its default."""
    checkpoint: Literal["folders", "commit"] = "folders"
    """Whether checkpoints also have changes of the image's own system, which the engine commits to an image."""
    verify_in: Literal["container", "image"] = "container"
    """The files of the system that verifiers see: as the agent left them, or the image's own.

    Of a workspace that is `/` they are the former."""
    system_changes_mb: int = Field(default=8192, ge=0)
    """MiB that commands may change of the image's own system for verifiers to see it: with more, the score is 0."""

    @property
    def name(self) -> str:
        return self.kind

    def __str__(self) -> str:
        return f"{self.kind} ({self.image or self.dockerfile})"

    @model_validator(mode="before")
    @classmethod
    def _refuse(cls, fields: object) -> object:
        """Say what there is in place of fields that other programs have."""
        if isinstance(fields, Mapping):
            for name in REFUSED.keys() & fields.keys():
                raise ValueError(f"{name}: {REFUSED[name]}")
            if isinstance(fields.get("network"), Mapping | list | tuple):
                raise ValueError(f"network: {NO_ALLOW_LIST}")
        return fields

    @field_validator("workdir", "home")
    @classmethod
    def _is_path(cls, value: str | None) -> str | None:
        if value not in (None, "/") and PATH.fullmatch(value or "") is None:
            raise ValueError(f"{value!r} is no absolute path of a folder")
        return value

    @model_validator(mode="after")
    def _one_image(self) -> "DockerConfig":
        if (self.image is None) == (self.dockerfile is None):
            raise ValueError("give either `image` or `dockerfile`")
        return self

    @model_validator(mode="after")
    def _committed(self) -> "DockerConfig":
        if self.checkpoint == "commit" and (self.read_only or self.relay or self.runtime is not None):
            raise ValueError(
                "checkpoint: commits are of a system that commands can change, by an engine that shares this "
                "host's files: leave out read_only, relay and runtime"
            )
        return self

    @model_validator(mode="after")
    def _whole_system(self) -> "DockerConfig":
        if self.home == "/":
            raise ValueError("home: a home is a folder of its own")
        if self.workdir == "/" and self.read_only:
            raise ValueError("workdir: `/` is the image's own system, which read_only keeps from changes")
        return self


def require_apart(*paths: str) -> None:
    """Raises ValueError where one path lies within another."""
    for at, one in enumerate(paths):
        for other in paths[at + 1 :]:
            if f"{one}/".startswith(f"{other}/") or f"{other}/".startswith(f"{one}/"):
                raise ValueError(f"{one!r} and {other!r} lie within each other: a sandbox has them apart")


def require_free(*paths: str, tmpfs: Iterable[str]) -> None:
    """Raises ValueError for a folder in which the engine mounts something: no archive could be unpacked there."""
    for path in paths:
        for mounted in (*tmpfs, *OF_THE_ENGINE):
            if f"{mounted}/".startswith(f"{path}/") or (
                mounted in OF_THE_ENGINE and f"{path}/".startswith(f"{mounted}/")
            ):
                raise ValueError(
                    f"{path!r} can't be a folder of a sandbox: the engine mounts {mounted} there"
                )


def volumes_apart(
    volumes: Iterable[str], *taken: str, tmpfs: Mapping[str, str], room: int
) -> tuple[str, ...]:
    """The volumes of an image that need a folder of their own. Raises ValueError for one that can't have any.

    One that is left to the engine would be in no checkpoint, and empty for a verifier.
    """
    own: list[str] = []
    for volume in volumes:
        if volume in taken or any(f"{volume}/".startswith(f"{path}/") for path in tmpfs):
            continue
        try:
            require_apart(volume, *taken, *tmpfs, *own)
        except ValueError as error:
            raise ValueError(f"the image's VOLUME: {error}") from None
        try:
            require_free(volume, tmpfs=tmpfs)
        except ValueError as error:
            raise ValueError(f"the image's VOLUME: {error}") from None
        if PATH.fullmatch(volume) is None:
            raise ValueError(f"the image's VOLUME {volume!r} can't be a folder of a sandbox")
        if len(own) == room:
            raise ValueError(f"the image's VOLUME {volume!r} is one folder too many for a checkpoint")
        own.append(volume)
    return tuple(own)
