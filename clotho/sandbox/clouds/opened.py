"""Clouds whose packages are imported when the first machine is asked for."""

import importlib
from typing import Any

from clotho.clouds import DaytonaAccount, E2bAccount, ModalAccount
from clotho.errors import InvalidInput

Account = ModalAccount | E2bAccount | DaytonaAccount
CLOUDS = {"modal": "ModalMachines", "e2b": "E2bMachines", "daytona": "DaytonaMachines"}


class ImportedMachines:
    """The machines of a cloud: a `Machine`, all of whose methods are those of the class in the cloud's module."""

    starts_first = False

    def __init__(self, kind: str, account: Account) -> None:
        self.kind = kind
        self._account = account
        self._machines: Any = None

    def __getattr__(self, name: str) -> Any:
        if self._machines is None:
            try:
                module = importlib.import_module(f"clotho.sandbox.clouds.{self.kind}")
            except ModuleNotFoundError as error:
                raise InvalidInput(
                    f"sandboxes of {self.kind} need: pip install 'clotho-rollouts[{self.kind}]'"
                ) from error
            self._machines = getattr(module, CLOUDS[self.kind])(self._account)
        return getattr(self._machines, name)
