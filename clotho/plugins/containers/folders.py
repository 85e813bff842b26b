"""The folder of a sandbox in a container: its record, the files that commands write to, and control directories."""

import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from clotho.errors import InvalidInput
from clotho.plugins.containers.config import DockerConfig
from clotho.plugins.containers.holdings import KEPT
from clotho.sandbox.places import USUAL_VARIABLES, outermost
from clotho.sandbox.supervised.control import ControlDirectory
from clotho.sandbox.supervised.folders import SupervisedFolder, SupervisedRecord, identity_of


class ContainerRecord(SupervisedRecord):
    """The record of a sandbox, in its folder."""

    config: DockerConfig
    image: str
    """The image's id: names may come to mean another one."""
    kept: str | None = None
    """The image of a checkpoint that it began from in place of that one."""
    missing: str | None = None
    """The image of a checkpoint that this engine had no more when it began."""
    machine: str
    """The image's architecture, as the supervisor's programs are named by."""
    workdir: str
    environment: dict[str, str]
    """The image's own variables."""
    volumes: tuple[str, ...] = ()
    """The image's volumes, where they are kept in further folders."""
    user: int = 0
    """The user id of commands. The supervisor is the container's root."""
    groups: tuple[Path, ...] = ()
    """The control groups that count its use."""

    @property
    def begun_from(self) -> str:
        return self.kept or self.image

    @property
    def roots(self) -> tuple[str, ...]:
        """The folders that commands write to beside the workspace, the home and /tmp."""
        return (*self.spec.writable_roots, *self.volumes)

    def control_at(self, path: Path) -> ControlDirectory:
        return ControlDirectory(path, 0, self.user) if self.user else ControlDirectory(path, None)


@dataclass(frozen=True)
class ContainerFolder(SupervisedFolder[ContainerRecord]):
    """The paths of one sandbox under a backend's root."""

    place: str = "sandboxes"

    @property
    def files(self) -> Path:
        return self.root / self.place / self.name

    @property
    def controls(self) -> Path:
        return self.files / "control"

    @property
    def container(self) -> str:
        """Name of the agent's container: another backend of its engine may hold a lease of the same name."""
        with suppress(FileNotFoundError):
            # a member of the pool was made under another folder's name
            return self._container_name.read_text()
        return f"clotho-{identity_of(self.root)[:8]}-{self.name}"

    @property
    def _container_name(self) -> Path:
        return self.files / "container"

    def keep_container_name(self) -> None:
        """Note the name of the container, which keeps it when the folder is renamed."""
        unfinished = self.files / ".container"
        unfinished.write_text(self.container)
        # renamed: a folder with half a name has a container that nobody can remove
        unfinished.rename(self._container_name)

    def verifier_container(self, epoch: int) -> str:
        return f"{self.container}-verifier-{epoch}"

    @property
    def left_image(self) -> str:
        """Prefix of the names of images that hold what the agent left."""
        return f"{self.container}-left-"

    @property
    def kept_image(self) -> str:
        """Prefix of checkpoint image names."""
        return f"{self.container}{KEPT}"

    @property
    def left_mark(self) -> Path:
        """A file that is there as long as there may be such images."""
        return self.files / "left"

    def writable(self, record: ContainerRecord) -> dict[str, Path]:
        """Writable folders, keyed by the first path at which commands see them."""
        disk = self.files / "disk"
        further = {path: disk / f"root-{number}" for number, path in enumerate(record.roots)}
        own = {record.workdir: disk / "work", record.config.home: disk / "home", "/tmp": disk / "tmp"}
        every = {**own, **further}
        return {path: every[path] for path in outermost(every)}

    def place_of(self, record: ContainerRecord, path: str) -> Path:
        """The folder on this host that commands see at `path`. Raises InvalidInput outside of writable folders."""
        for outer, place in self.writable(record).items():
            if f"{path}/".startswith(f"{outer}/"):
                return place / path.removeprefix(outer).lstrip("/")
        raise InvalidInput(f"{path!r} is in no folder of the sandbox")

    def instances(self) -> dict[str, Path]:
        """The control directories by their containers, the agent's first."""
        return {self.container: self.control()} | {
            self.verifier_container(epoch): self.verifier_control(epoch) for epoch in self.verifier_epochs()
        }

    @property
    def _lock_name(self) -> str:
        """The locks of seeds are others than those of leases, which would else wait until a seed is packed."""
        return self.name[:-16]

    def _parsed(self, text: str) -> ContainerRecord:
        return ContainerRecord.model_validate_json(text)


def members(root: Path, key: str = "*") -> Iterator[ContainerFolder]:
    """Containers made ahead, of one kind or of all."""
    for path in root.glob(f"pool/{key}/*"):
        yield ContainerFolder(root, path.name, f"pool/{path.parent.name}")


def owned(path: Path, user: int, mode: int = 0o755) -> None:
    """Make a folder that is the user's."""
    path.mkdir(parents=True)
    path.chmod(mode)
    own(path, user)


def own(path: Path, user: int) -> None:
    """Give a folder to the user, as far as this process may."""
    if os.geteuid() == 0:
        os.chown(path, user, user)


def variables(record: ContainerRecord) -> Mapping[str, str]:
    """Environment variables of the agent's commands, to which jobs add their own."""
    return {**USUAL_VARIABLES, **record.environment, "HOME": record.config.home, **record.spec.variables}
