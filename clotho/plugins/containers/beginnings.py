"""The beginning of a sandbox in a container: its image, and what that has in the folders that commands write to.

An image may have to be pulled or built first, which takes as long as it takes: no sandbox is locked meanwhile, and
no thread kept that another image, or a lease, waits for.
"""

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from clotho.errors import InvalidInput
from clotho.plugins.containers.accounts import home_in, named_user
from clotho.plugins.containers.config import DockerConfig, require_apart, require_free, volumes_apart
from clotho.plugins.containers.folders import ContainerRecord
from clotho.plugins.containers.holdings import LABEL, LEASE_LABEL, Image
from clotho.plugins.containers.host import ContainerHost
from clotho.plugins.containers.images import build
from clotho.plugins.containers.seeds import Seeds
from clotho.sandbox.backend import WORKSPACE, Labels, SandboxSpec
from clotho.sandbox.checkpoints import Restore
from clotho.sandbox.places import MOST_ROOTS, TMP, outermost
from clotho.sandbox.supervised.folders import identity_of, lock
from clotho.sandbox.threads import with_image


@dataclass(frozen=True)
class Beginnings:
    """The beginnings of a backend's sandboxes, whose files are below `root`."""

    root: Path
    host: ContainerHost

    async def of(
        self, lease: str, spec: SandboxSpec, config: DockerConfig, labels: Labels | None
    ) -> tuple[ContainerRecord, Restore | None]:
        """The record of a sandbox to make, and what to restore in it. Raises InvalidInput for a missing image."""
        asked = (config.image, config.dockerfile, config.pull, config.platform)
        image = await with_image((self.root, asked), self._image, config)
        if config.image_places:
            home = await with_image((self.root, image.id, config.user), self._home, config, image)
            config = config.model_copy(update={"home": home})
        record = _record(lease, spec, config, labels, image)
        seeds = Seeds(self.root, self.host)
        seed = await with_image((self.root, seeds.key(record)), seeds.of, record)
        return record.model_copy(update={"user": _user(config, image, seed.users)}), seed.restore

    def _home(self, config: DockerConfig, image: Image) -> str:
        # of no lease: one that is left may go after the grace alone
        ownership = {LABEL: identity_of(self.root), LEASE_LABEL: "0"}
        return home_in(self.host.engine, config, image, ownership)

    def _image(self, config: DockerConfig) -> Image:
        engine, locks = self.host.engine, self.root / "locks"
        if config.dockerfile is not None:
            file = Path(config.dockerfile)
            built = build(engine, file.parent, file.name, locks, platform=config.platform)
            return engine.image(built, "never")
        name = config.image or ""
        locks.mkdir(mode=0o700, parents=True, exist_ok=True)
        # one process of the host pulls an image; the others find it then
        with lock(locks / f"image-{hashlib.sha256(name.encode()).hexdigest()[:20]}"):
            return engine.image(name, config.pull, config.platform)


def _record(
    lease: str, spec: SandboxSpec, config: DockerConfig, labels: Labels | None, image: Image
) -> ContainerRecord:
    workdir = config.workdir or image.workdir.rstrip("/") or ("/" if config.image_places else WORKSPACE)
    # a workspace that is at its further name already would be mounted over itself
    aliases = {path: meant for path, meant in spec.aliases.items() if (path, meant) != (workdir, WORKSPACE)}
    spec = spec.model_copy(update={"aliases": aliases})
    try:
        own = outermost((workdir, config.home, TMP, *spec.writable_roots))
        taken = (*own, *spec.aliases, *spec.mounts)
        require_apart(*taken)
        for seen in spec.mounts:
            require_apart(seen, *config.tmpfs)
        free = (each for each in (workdir, config.home, *spec.writable_roots) if each != "/")
        require_free(*free, tmpfs=config.tmpfs)
        room = MOST_ROOTS - len(spec.writable_roots)
        volumes = volumes_apart(image.volumes, *taken, tmpfs=config.tmpfs, room=room)
    except ValueError as error:
        raise InvalidInput(f"{config}: {error}; give another workdir, home or image") from error
    return ContainerRecord(
        lease=lease,
        labels=labels,
        spec=spec,
        config=config,
        image=image.id,
        machine=image.architecture,
        workdir=workdir,
        environment=dict(image.environment),
        volumes=volumes,
    )


def _user(config: DockerConfig, image: Image, users: Mapping[str, int]) -> int:
    """Raises InvalidInput for a name that the image doesn't know, and a user whom no files can be given to."""
    name = named_user(config, image)
    if not name.isdigit() and name not in users:
        raise InvalidInput(f"{config} has no user {name!r} in its /etc/passwd: give an id")
    user = int(name) if name.isdigit() else users[name]
    if user and os.geteuid() != 0:
        raise InvalidInput(
            f"commands of {config} run as user {name}, and only a worker that is root can give files to that user: "
            "run the worker as root, or give `user: root`, who is the worker's own user in a rootless engine"
        )
    return user
