"""Containers of an engine that shares no files with this host, such as one on another machine."""

import asyncio
import hashlib
import io
import logging
import tarfile
import threading
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, cast

from clotho.errors import InvalidInput, SandboxLost, SandboxUnavailable, WorkspaceRefused
from clotho.plugins.containers.accounts import home_in
from clotho.plugins.containers.config import DockerConfig
from clotho.plugins.containers.engine import Engine, engine_failures, sdk
from clotho.plugins.containers.images import build
from clotho.plugins.containers.relay.machine import Base, Found, Start
from clotho.plugins.containers.relay.view import CONTROL
from clotho.plugins.containers.stream import EngineChannel
from clotho.plugins.containers.view import engine_settings
from clotho.sandbox.backend import SandboxSpec
from clotho.sandbox.supervised.folders import lock

log = logging.getLogger("clotho")

ARCHITECTURES = {"amd64": "x86_64", "arm64": "aarch64"}
VERIFY_IN, SYSTEM_CHANGES_MB = "clotho.verify-in", "clotho.system-changes-mb"
"""Labels with what a snapshot has to know of the container's configuration."""
WHOLE = "whole"
"""The file that is written last to the supervisor's volume."""


class ContainerMachine:
    """Containers of the engine at `address`. Processes of this host write to it under the locks in `locks`."""

    kind = "docker"
    starts_first = extends = True
    max_lifetime_seconds: float | None = None
    """A supervisor that is the first process ends the container with its lease."""

    def __init__(self, address: str | None, locks: Path) -> None:
        self._engine = Engine(address, anywhere=True)
        self._locks = locks
        self._programs = threading.Lock()
        self._ready: set[str] = set()

    async def base(self, spec: SandboxSpec) -> Base:
        return await asyncio.to_thread(self._base, cast(DockerConfig, spec.backend))

    async def create(
        self,
        name: str,
        base: Base,
        spec: SandboxSpec,
        labels: Mapping[str, str],
        lifetime_seconds: float,
        start: Start | None = None,
    ) -> None:
        assert start is not None
        await asyncio.to_thread(self._create, name, base, spec, labels, start)

    async def extend(self, name: str, lifetime_seconds: float) -> None:
        return None

    async def find(self, name: str) -> Found | None:
        return await asyncio.to_thread(self._find, name)

    async def put(self, name: str, files: Mapping[str, bytes]) -> None:
        await asyncio.to_thread(self._put, name, files)

    async def open(self, name: str, argv: Sequence[str]) -> EngineChannel:
        program = await asyncio.to_thread(self._program, name, argv)
        return await EngineChannel.open(self._engine.address, program)

    async def snapshot(self, name: str) -> Base | None:
        return await asyncio.to_thread(self._snapshot, name)

    async def destroy(self, name: str) -> None:
        await asyncio.to_thread(self._destroy, name)

    async def remove_ended(self, found: Found) -> bool:
        return await asyncio.to_thread(self._remove_ended, found)

    async def list(self, labels: Mapping[str, str]) -> Sequence[Found]:
        return await asyncio.to_thread(self._list, labels)

    async def close(self) -> None:
        await asyncio.to_thread(self._engine.close)

    # ---- the same, blocking ----

    def _base(self, config: DockerConfig) -> Base:
        name = config.image or ""
        if config.dockerfile is not None:
            file = Path(config.dockerfile)
            name = build(self._engine, file.parent, file.name, self._locks, platform=config.platform)
        image = self._engine.image(
            name, config.pull if config.dockerfile is None else "never", config.platform
        )
        if image.architecture not in ARCHITECTURES:
            raise InvalidInput(
                f"no sandboxes in images for {image.architecture or 'an unknown architecture'}"
            )
        if config.checkpoint == "commit":
            raise InvalidInput(f"{config}: an engine elsewhere commits no checkpoints")
        if config.read_only:
            raise InvalidInput(f"{config}: read_only takes folders of this host: the engine has none of them")
        home = home_in(self._engine, config, image, {}) if config.image_places else ""
        tmpfs = tuple(f"{path}/" for path in config.tmpfs)
        if own := [volume for volume in image.volumes if not f"{volume}/".startswith(tmpfs)]:
            raise InvalidInput(f"{config}: an engine elsewhere can't keep the image's VOLUME {own[0]}")
        return Base.model_validate(
            {
                "image": image.id,
                "architecture": ARCHITECTURES[image.architecture],
                "workdir": image.workdir.rstrip("/") or ("/" if config.image_places else ""),
                "home": home,
                "environment": dict(image.environment),
                "user": image.user,
            }
        )

    def _create(
        self, name: str, base: Base, spec: SandboxSpec, labels: Mapping[str, str], start: Start
    ) -> None:
        found = self._find(name)
        if found is not None and found.running:
            return
        labels = {**labels, **_labels(cast(DockerConfig, spec.backend))}
        write = partial(self._write_program, name, base, labels, start)
        volume, folder = _volume_of(start)
        # locked while it is written: no other thread starts a container from half a volume
        with self._programs:
            if volume not in self._ready:
                write()
                self._ready.add(volume)
        settings = _settings(cast(DockerConfig, spec.backend), spec, labels, start)
        # CONTROL is a volume of the container's own: the supervisor can detach a mount alone, and no commit has it
        settings["volumes"] = [f"{volume}:{folder}:ro", CONTROL]
        try:
            self._engine.start(base.image, name, settings)
        except SandboxUnavailable:
            # the next attempt looks whether the volume is still whole
            self._ready.discard(volume)
            raise
        except InvalidInput as error:
            self._ready.discard(volume)
            # for a pruned volume, an engine makes an empty one, in which the entrypoint isn't found
            if write():
                raise SandboxUnavailable("the supervisor's volume had been removed") from error
            raise

    def _write_program(self, name: str, base: Base, labels: Mapping[str, str], start: Start) -> bool:
        """Write the supervisor to its volume, which commands see read-only; returns whether it wasn't there.

        A volume is written to once: containers may be about to start from it.
        """
        volume, folder = _volume_of(start)
        helper, client = f"{name}-volume", self._engine.client
        self._locks.mkdir(mode=0o700, parents=True, exist_ok=True)
        with lock(self._locks / volume), engine_failures("the supervisor's volume"):
            # left by a worker that died here
            self._engine.remove(helper)
            client.volumes.create(volume)
            host = client.api.create_host_config(binds=[f"{volume}:{folder}"], network_mode="none")
            # never started: archives can be written to it all the same. By its labels, a reaper finds it
            client.api.create_container(
                base.image, command=["-"], host_config=host, labels=dict(labels), name=helper
            )
            try:
                if self._has_file(helper, f"{folder}/{WHOLE}"):
                    return False
                named = {Path(path).name: content for path, content in start.files.items()}
                client.api.put_archive(helper, folder, _archive(named))
                # by itself: an archive that is cut off leaves the files that came before
                client.api.put_archive(helper, folder, _archive({WHOLE: b""}))
                return True
            finally:
                self._engine.remove(helper)

    def _has_file(self, name: str, path: str) -> bool:
        try:
            content, _ = self._engine.client.api.get_archive(name, path)
        except sdk().errors.NotFound:
            return False
        for _ in content:  # the connection is free again at its end
            pass
        return True

    def _find(self, name: str) -> Found | None:
        with engine_failures("a container"):
            try:
                found = self._engine.client.api.inspect_container(name)
            except sdk().errors.NotFound:
                return None
        return Found(name, found["Config"]["Labels"] or {}, bool(found["State"]["Running"]))

    def _put(self, name: str, files: Mapping[str, bytes]) -> None:
        with engine_failures("a container"):
            try:
                self._engine.client.api.put_archive(name, "/", _archive(files))
            except sdk().errors.NotFound:
                raise SandboxLost("the sandbox's container is gone") from None

    def _program(self, name: str, argv: Sequence[str]) -> str:
        try:
            with engine_failures("a container"):
                made = self._engine.client.api.exec_create(
                    name, list(argv), stdin=True, user="0:0", workdir="/"
                )
        except (SandboxUnavailable, InvalidInput):
            # engines word it differently that a container has ended: they are asked whether it has
            found = self._find(name)
            if found is None or not found.running:
                raise SandboxLost("the sandbox's container is gone") from None
            raise
        return str(made["Id"])

    def _snapshot(self, name: str) -> Base | None:
        found = self._find(name)
        if found is None:
            raise SandboxLost("the sandbox's container is gone")
        if found.labels.get(VERIFY_IN) == "image":
            return None
        most = found.labels.get(SYSTEM_CHANGES_MB)
        # before the commit, which copies all of it
        written = self._engine.written_bytes(name) >> 20
        if most is not None and written > int(most):
            raise WorkspaceRefused(f"commands wrote {written} MiB beside the image: more than {most} MiB")
        with engine_failures("a container"), self._engine.patient() as client:
            # no pause: it would stop the supervisor and its relays, too
            kept = client.api.commit(name, repository=_left_by(name), pause=False)
        return Base(image=str(kept["Id"]))

    def _destroy(self, name: str) -> None:
        self._engine.remove(name)
        if self._engine.has_image(_left_by(name)):
            self._engine.remove_image(_left_by(name))

    def _remove_ended(self, found: Found) -> bool:
        try:
            self._engine.remove(found.id, force=False)
            # by name: another store may have made a machine of that name since, which has the image
            if self._find(found.name) is None and self._engine.has_image(_left_by(found.name)):
                self._engine.remove_image(_left_by(found.name), force=False)
        except SandboxUnavailable as error:  # it runs after all
            log.info("container %s not removed: %s", found.name, error)
            return False
        return True

    def _list(self, labels: Mapping[str, str]) -> Sequence[Found]:
        with engine_failures("containers"):
            found = self._engine.client.api.containers(
                all=True, filters={"label": [f"{name}={value}" for name, value in labels.items()]}
            )
        return [
            Found(name.lstrip("/"), each["Labels"], each["State"] == "running", each["Id"])
            for each in found
            for name in (each["Names"] or ())[:1]  # one that is just being removed has none
        ]


def _volume_of(start: Start) -> tuple[str, str]:
    """The name of the volume with a start's files, and the folder where it is mounted."""
    files = start.files
    digest = hashlib.sha256(b"".join(files[name] for name in sorted(files))).hexdigest()[:16]
    return f"clotho-supervisor-{digest}", str(Path(next(iter(files))).parent)


def _labels(config: DockerConfig) -> dict[str, str]:
    return {VERIFY_IN: config.verify_in, SYSTEM_CHANGES_MB: str(config.system_changes_mb)}


def _settings(
    config: DockerConfig, spec: SandboxSpec, labels: Mapping[str, str], start: Start
) -> dict[str, Any]:
    return {
        **engine_settings(config, spec),
        "entrypoint": [start.argv[0]],
        "command": list(start.argv[1:]),
        "environment": dict(start.environment),
        "working_dir": start.workdir,
        "labels": dict(labels),
        "tmpfs": dict(config.tmpfs),
        **({} if config.runtime is None else {"runtime": config.runtime}),
    }


def _left_by(name: str) -> str:
    """Name of the image that holds what the agent left."""
    return f"localhost/{name}-left"


def _archive(files: Mapping[str, bytes]) -> bytes:
    """A tar archive that ends at its two blocks of zeros, without the padding that `tarfile` adds.

    Podman stops reading at these blocks: padding that arrives later, as over a network, fails the request with
    "passing bulk input to subprocess: write |1: broken pipe".
    """
    to = io.BytesIO()
    with tarfile.open(fileobj=to, mode="w") as tar:
        for name, content in files.items():
            entry = tarfile.TarInfo(name.lstrip("/"))
            entry.size, entry.mode = len(content), 0o755
            tar.addfile(entry, io.BytesIO(content))
        end = to.tell() + 2 * tarfile.BLOCKSIZE
    return to.getvalue()[:end]
