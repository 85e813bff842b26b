"""The backends of containers that a worker has: over this host's files, and through an engine's streams."""

from pathlib import Path

from clotho.config import Settings, variable
from clotho.plugins.containers.backend import ContainerBackend
from clotho.plugins.containers.machine import ContainerMachine
from clotho.plugins.containers.relay.backend import RelayedBackend
from clotho.plugins.containers.settings import ContainerSettings
from clotho.sandbox.backend import BesideBackend


def engine_address(settings: Settings) -> str | None:
    return settings.of(ContainerSettings).docker_host or variable("DOCKER_HOST")


def open_containers(settings: Settings, folder: Path) -> tuple[BesideBackend, ...]:
    address, warm = engine_address(settings), settings.of(ContainerSettings).warm
    machine = ContainerMachine(address, folder / "relayed" / "locks")
    return (
        ContainerBackend(folder / "containers", address, warm),
        RelayedBackend(folder / "relayed" / machine.kind, machine),
    )
