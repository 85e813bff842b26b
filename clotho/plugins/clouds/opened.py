"""Clouds whose packages are imported when the first machine is asked for."""

import importlib
import threading
from pathlib import Path
from typing import Any, cast

from clotho.config import Settings
from clotho.errors import InvalidInput
from clotho.plugins.clouds.accounts import CloudSettings, DaytonaAccount, E2bAccount, ModalAccount
from clotho.plugins.containers.relay.backend import RelayedBackend
from clotho.plugins.containers.relay.machine import Machine

Account = ModalAccount | E2bAccount | DaytonaAccount
CLOUDS = {"modal": "ModalMachines", "e2b": "E2bMachines", "daytona": "DaytonaMachines"}


class ImportedMachines:
    """The machines of a cloud: a `Machine`, all of whose methods are those of the class in the cloud's module."""

    starts_first = False

    def __init__(self, kind: str, account: Account) -> None:
        self.kind = kind
        self._account = account
        self._opening = threading.Lock()
        self._machines: Any = None

    def __getattr__(self, name: str) -> Any:
        with self._opening:
            if self._machines is None:
                self._machines = self._opened()
        return getattr(self._machines, name)

    def _opened(self) -> Any:
        try:
            module = importlib.import_module(f"clotho.plugins.clouds.{self.kind}")
        except ModuleNotFoundError as error:
            raise InvalidInput(
                f"sandboxes of {self.kind} need: pip install 'clotho-rollouts[{self.kind}]'"
            ) from error
        return getattr(module, CLOUDS[self.kind])(self._account)

    async def close(self) -> None:
        """Nothing is imported for it."""
        if self._machines is not None:
            await self._machines.close()


def open_modal(settings: Settings, folder: Path) -> tuple[RelayedBackend, ...]:
    return _relayed("modal", settings.of(CloudSettings).modal, folder)


def open_e2b(settings: Settings, folder: Path) -> tuple[RelayedBackend, ...]:
    return _relayed("e2b", settings.of(CloudSettings).e2b, folder)


def open_daytona(settings: Settings, folder: Path) -> tuple[RelayedBackend, ...]:
    return _relayed("daytona", settings.of(CloudSettings).daytona, folder)


def _relayed(cloud: str, account: Account, folder: Path) -> tuple[RelayedBackend, ...]:
    machine = cast(Machine, ImportedMachines(cloud, account))
    return (RelayedBackend(folder / "relayed" / cloud, machine),)
