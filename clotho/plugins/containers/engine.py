"""The container engine of this host, through its socket: Docker's own, or podman's.

All calls block. They raise SandboxUnavailable for an engine that doesn't answer, which callers ask again, and
InvalidInput for what it refuses for good, such as an image that doesn't exist.
"""

import io
import tarfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clotho.config import engine_socket
from clotho.errors import InvalidInput, SandboxUnavailable
from clotho.plugins.containers.holdings import LABEL, OF_THIS_HOST, Image, Made
from clotho.plugins.containers.known_failures import NO_GPUS, Request, failure_of

if TYPE_CHECKING:
    from docker import DockerClient

# as many as threads that make sandboxes: the package keeps 10, and throws further ones away after each request
CONNECTIONS = 64
OLDEST_API = "1.24"
"""The oldest that the package speaks."""
TIMEOUT_SECONDS = 120
PULL_SECONDS = 3600
KEEP_SECONDS = 1800
"""For what takes as long as what a container has written is large."""
REMOVE_SECONDS = 10.0
LOG_CHARS = 2_000


class Engine:
    """`address` is the engine's socket, as in DOCKER_HOST; None: where Docker or podman usually have theirs.

    `anywhere`: whether it may be on another machine.
    """

    def __init__(self, address: str | None, *, anywhere: bool = False) -> None:
        self._address = address
        self._anywhere = anywhere
        self._opening = threading.Lock()
        self._client: DockerClient | None = None

    @property
    def client(self) -> "DockerClient":
        """Raises InvalidInput for an engine on another machine, SandboxUnavailable where none answers."""
        with self._opening:
            if self._client is None:
                self._client = self._opened()
            return self._client

    def close(self) -> None:
        """Close the client, where there is one; it is opened again when it is needed."""
        with self._opening:
            client, self._client = self._client, None
        if client is not None:
            client.close()

    @contextmanager
    def patient(self) -> "Iterator[DockerClient]":
        """A client for one slow request."""
        # the package has a time-out for each client, none for each request
        client = self._opened(KEEP_SECONDS, self.client.api.api_version)
        try:
            yield client
        finally:
            client.close()

    @property
    def address(self) -> str:
        """Raises SandboxUnavailable where there is none."""
        address = self._address or engine_socket()
        if address is None:
            raise SandboxUnavailable(
                "no container engine on this host: start one with `systemctl --user start podman.socket`, "
                "`podman system service --time 0` or `systemctl start docker`, or set DOCKER_HOST"
            )
        return address

    def _opened(self, timeout: float = TIMEOUT_SECONDS, version: str | None = None) -> "DockerClient":
        address = self.address
        if is_elsewhere(address) and not self._anywhere:
            raise InvalidInput(
                f"the container engine at {address} is on another machine: a socket of this host is needed"
            )
        reached: dict[str, Any] = {"base_url": address, "timeout": timeout}
        if address.startswith("ssh://"):
            # the ssh program, as EngineChannel has it: both reach the host by the same keys and configuration
            reached["use_ssh_client"] = True
        with engine_failures(f"the container engine at {address}"):
            spoken = version or _spoken_version(reached)
            return sdk().DockerClient(**reached, version=spoken, max_pool_size=CONNECTIONS)

    # ---- images ----

    def image(self, name: str, pull: str = "missing", platform: str | None = None) -> Image:
        """The image called `name`, pulled when `pull` says so. Raises InvalidInput where there is none."""
        errors = sdk().errors
        with engine_failures(f"image {name}"):
            found = None
            with suppress(errors.ImageNotFound):  # a name that it can't parse, podman may pull as another
                found = self.client.images.get(name)
            if found is None and pull == "never":
                raise InvalidInput(f"there is no image {name} on this host, and none is pulled")
            if found is None or pull == "always":
                self._pull(name, platform)
                found = self.client.images.get(name)
        config = found.attrs.get("Config") or {}
        variables = (each.partition("=") for each in config.get("Env") or ())
        return Image(
            id=str(found.id),
            architecture=str(found.attrs.get("Architecture") or ""),
            workdir=str(config.get("WorkingDir") or ""),
            environment={name: value for name, _, value in variables},
            user=str(config.get("User") or ""),
            volumes=sorted({path.rstrip("/") for path in config.get("Volumes") or ()}),
        )

    def text_in(self, image: str, path: str, max_bytes: int, labels: Mapping[str, str]) -> str:
        """The beginning of a text file in an image; empty where there is none. Makes a container with `labels`."""
        errors = sdk().errors
        with engine_failures(f"image {image}"):
            # never started: an engine refuses a container without a command, which an image may lack
            made = self.client.api.create_container(image, command=["-"], labels=dict(labels))
            try:
                content, _ = self.client.api.get_archive(made["Id"], path)
                begun, most = bytearray(), max_bytes + 2 * tarfile.BLOCKSIZE
                for chunk in content:
                    begun += chunk
                    # the file is the image's, and may be of any size
                    if len(begun) >= most:
                        break
                archive = io.BytesIO(begun[:most])
                with tarfile.open(fileobj=archive) as tar:
                    member = tar.next()
                    if member is None or not member.isreg():
                        return ""
                    archive.seek(member.offset_data)
                    return archive.read(min(member.size, max_bytes)).decode(errors="replace")
            except errors.NotFound:
                # fails where the container is gone, which a reaper can take for left over: the file may be there
                self.client.api.inspect_container(made["Id"])
                return ""
            finally:
                self.remove(made["Id"])

    def has_image(self, name: str) -> bool:
        return self.image_id(name) is not None

    def image_id(self, name: str) -> str | None:
        """The id of the image that `name` means now; None where the engine has none."""
        errors = sdk().errors
        with engine_failures(f"image {name}"):
            try:
                return str(self.client.images.get(name).id)
            except errors.ImageNotFound:
                return None

    def build(
        self, context: Path, dockerfile: str, name: str, arguments: Mapping[str, str], platform: str | None
    ) -> None:
        """Build an image. Raises InvalidInput with the end of the log where a step fails.

        A registry that can't be reached, or a full disk, is an outage: SandboxUnavailable.
        """
        errors = sdk().errors
        with engine_failures(f"the build of {context / dockerfile}"):
            try:
                self.client.images.build(
                    path=str(context),
                    dockerfile=dockerfile,
                    tag=name,
                    buildargs=dict(arguments),
                    platform=platform,
                    # what a step leaves has no label by which a reaper would find it
                    rm=True,
                    forcerm=True,
                    timeout=PULL_SECONDS,
                )
            except errors.BuildError as error:
                # by the message alone: the log has the words of the Dockerfile's commands
                failure = failure_of(f"{context / dockerfile} can't be built", str(error.msg), Request.BUILD)
                if isinstance(failure, SandboxUnavailable):
                    raise failure from error
                lines = (str(each.get("stream") or each.get("error") or "") for each in error.build_log)
                said = "".join(lines).strip()[-LOG_CHARS:]
                raise InvalidInput(f"{failure}\n{said}") from error

    def _pull(self, name: str, platform: str | None) -> None:
        """Pull an image. Engines report a failure by the answer's status, or among the lines of progress."""
        errors, (repository, tag) = sdk().errors, sdk().utils.parse_repository_tag(name)
        deadline = time.monotonic() + PULL_SECONDS
        said = ""
        try:
            for each in self.client.api.pull(
                repository, tag=tag or "latest", stream=True, decode=True, platform=platform
            ):
                said = said or str(each.get("error") or "")
                # the client's time-out is for silence: a registry that trickles never meets it
                if time.monotonic() > deadline:
                    raise SandboxUnavailable(f"image {name} can't be pulled within {PULL_SECONDS} s")
        except errors.APIError as error:
            said = _said(error)
        if not said:
            return
        # podman asks a registry at localhost, and that nobody answers there would pass for an outage
        if name.startswith(OF_THIS_HOST):
            raise InvalidInput(f"there is no image {name} on the engine's host: build or import it there")
        raise failure_of(f"image {name} can't be pulled", said[-LOG_CHARS:], Request.PULL)

    # ---- containers ----

    def start(self, image: str, name: str, settings: Mapping[str, Any]) -> None:
        """Make and start a container, in place of any other of that name."""
        errors = sdk().errors
        with engine_failures("a container"):
            try:
                made = self.client.containers.create(image, name=name, detach=True, **settings)
            except errors.APIError as error:
                # podman answers with 500, Docker with 409: the words are the same
                if "already in use" not in str(error):
                    raise
                # left by an attempt that died: the caller has the sandbox's lock, and nobody else makes it
                self.remove(name)
                made = self.client.containers.create(image, name=name, detach=True, **settings)
            # before the start: podman's socket takes the request and ignores it
            if settings.get("device_requests") and not _has_devices(made.attrs["HostConfig"]):
                raise InvalidInput(f"{NO_GPUS}: this engine ignores requests for them")
            made.start()

    def ended(self, name: str) -> str | None:
        """The end of the log of a container that has ended; None for one that runs, or was only made."""
        errors = sdk().errors
        with engine_failures("a container"):
            try:
                found = self.client.containers.get(name)
            except errors.NotFound:
                return "it is gone"
            # one that was only made is about to start
            if found.status in ("running", "created", "initialized"):
                return None
            with suppress(errors.APIError):
                return str(found.logs(tail=20).decode(errors="replace")[-LOG_CHARS:].strip())
            return f"it has {found.status}"

    def remove(self, name: str, *, force: bool = True) -> None:
        """Remove a container, if it is there, and its anonymous volumes. `force` kills one that runs."""
        errors = sdk().errors
        deadline = time.monotonic() + REMOVE_SECONDS
        with engine_failures("a container"), suppress(errors.NotFound):
            while True:
                try:
                    self.client.api.remove_container(name, v=True, force=force)
                    return
                except errors.NotFound:
                    raise
                except errors.APIError:  # podman still cleans up after a container that has just ended
                    if time.monotonic() > deadline:
                        raise
                    time.sleep(0.02)

    def containers(self) -> Sequence[Made]:
        """All containers made here."""
        with engine_failures("containers"):
            found = self.client.api.containers(all=True, filters={"label": [LABEL]})
        return [Made.listed(each) for each in found]

    def written_bytes(self, name: str) -> int:
        """Bytes of the files outside of mounts that differ from the image."""
        with engine_failures("a container"), self.patient() as client:
            found = client.api.containers(all=True, size=True, filters={"name": name})
        # filters match a part of a name: the names of verifiers' containers begin with the agent's
        return sum(each.get("SizeRw") or 0 for each in found if each["Names"][0].lstrip("/") == name)

    def layer(self, name: str) -> Path | None:
        """The folder with the files that a container has written; None where its engine names no such folder."""
        with engine_failures("a container"):
            driver = self.client.api.inspect_container(name).get("GraphDriver") or {}
        folder = (driver.get("Data") or {}).get("UpperDir")
        return Path(folder) if folder else None

    def changes(self, name: str) -> Sequence[str]:
        """The paths outside of mounts that differ from the image."""
        with engine_failures("a container"), self.patient() as client:
            return [each["Path"] for each in client.api.diff(name) or ()]

    def commit(self, name: str, image: str, labels: Mapping[str, str]) -> None:
        """Keep the files of a container, without its mounts, as an image."""
        changes = [f'LABEL {label}="{value}"' for label, value in labels.items()]
        with engine_failures("a container"), self.patient() as client:
            # no pause: it would stop the supervisor, too, which serves other calls meanwhile
            client.api.commit(name, repository=f"{OF_THIS_HOST}{image}", pause=False, changes=changes)

    def left_images(self) -> Sequence[Made]:
        """All images of containers made here."""
        with engine_failures("images"):
            found = self.client.api.images(filters={"label": [LABEL]})
        return [Made.listed(each) for each in found]

    def remove_image(self, identity: str, *, force: bool = True) -> None:
        errors = sdk().errors
        with engine_failures("images"), suppress(errors.ImageNotFound):
            self.client.images.remove(identity, force=force)

    def info(self) -> Mapping[str, Any]:
        with engine_failures("the container engine"):
            return dict(self.client.info())


def is_elsewhere(address: str | None) -> bool:
    """Whether an engine shares no folders with this host."""
    return address is not None and not address.startswith("unix://")


_importing = threading.Lock()
"""Threads that import a package side by side, whose modules import one another, can leave half of it."""


def sdk() -> Any:
    """The `docker` package, imported when it is needed. Raises InvalidInput where it isn't installed."""
    try:
        with _importing:
            import docker
            import docker.errors
    except ImportError:
        raise InvalidInput("containers need the `docker` package: install clotho-rollouts[docker]") from None
    return docker


@contextmanager
def engine_failures(what: str) -> Iterator[None]:
    """Raise an engine's failures as SandboxUnavailable, and those that no other attempt mends as InvalidInput."""
    errors = sdk().errors
    try:
        yield
    except errors.APIError as error:
        if error.status_code == 400:
            raise InvalidInput(f"{what}: {_said(error)}") from error
        raise failure_of(what, _said(error)) from error
    except (errors.DockerException, OSError) as error:
        raise SandboxUnavailable(f"{what}: {error}") from error


def _spoken_version(reached: Mapping[str, Any]) -> str:
    """The version of its API that an engine speaks, by its answer to a ping.

    By default, the package asks for all versions. For these, podman asks the system's package manager about its
    programs, each time: half a second of a processor.
    """
    with closing(sdk().APIClient(**reached, version=OLDEST_API)) as client:
        answer = client.get(f"{client.base_url}/_ping", timeout=reached["timeout"])
    return answer.headers.get("Api-Version") or "auto"


def _has_devices(host: Mapping[str, Any]) -> bool:
    """Whether an engine has taken a request for devices, by what it says of the container."""
    return bool(host.get("DeviceRequests") or host.get("Devices"))


def _said(error: Any) -> str:
    return str(error.explanation or error)[-LOG_CHARS:]
