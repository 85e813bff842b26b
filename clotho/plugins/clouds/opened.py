"""Clouds whose packages are imported when the first machine is asked for."""

import importlib
import threading
from functools import partial
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
    """The machines of a cloud: a `Machine` that takes its methods from the class in the cloud's module."""

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


def _relayed(cloud: str, settings: Settings, folder: Path) -> tuple[RelayedBackend, ...]:
    account: Account = getattr(settings.of(CloudSettings), cloud)
    machine = cast(Machine, ImportedMachines(cloud, account))
    return (RelayedBackend(folder / "relayed" / cloud, machine),)


open_modal = partial(_relayed, "modal")
open_e2b = partial(_relayed, "e2b")
open_daytona = partial(_relayed, "daytona")
