"""Clouds whose packages are imported when the first machine is asked for."""

import importlib
import threading
from typing import Any

from clotho.errors import InvalidInput
from clotho.plugins.clouds.accounts import DaytonaAccount, E2bAccount, ModalAccount

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
