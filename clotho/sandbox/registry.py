"""How the sandbox backends of a worker's host are opened: the one that its settings name, and those of plugins.

A backend is a class with the methods of `SandboxBackend` (`clotho/sandbox/backend.py`). One of another package is
named as `module:Class` by workers and runs, or is brought by a plugin with a configuration of its own
(`docs/how-to/sandbox-backend.md`).
"""

import os
from pathlib import Path
from typing import cast

from clotho.config import Settings
from clotho.errors import InvalidInput
from clotho.imported import imported
from clotho.plugin import load_with_needs, plugins
from clotho.sandbox.backend import BesideBackend, SandboxBackend
from clotho.sandbox.backends import Backends
from clotho.sandbox.config import sandbox_kinds
from clotho.sandbox.local.backend import LocalBackend


def open_backend(settings: Settings, folder: Path, *, worker_elsewhere: bool = False) -> Backends:
    """The backend that this host's settings name, over `folder`, and those of plugins that runs may ask for.

    With `worker_elsewhere`, a worker of another machine uses it, whose own settings tell how long leases are.
    Raises InvalidInput where the settings name no backend, or one that can't be imported. Backends connect to
    nothing before a sandbox needs it.
    """
    beside = tuple(
        cast(BesideBackend, backend)
        for plugin in plugins().values()
        # kinds of a plugin may share what opens them: it is called once for all
        for kind in dict.fromkeys(each.open for each in plugin.sandboxes.values() if each.beside)
        for backend in load_with_needs(plugin, kind)(settings, folder)
    )
    lease_seconds = None if worker_elsewhere else settings.sandbox.lease_seconds
    return Backends(own_backend(settings, folder), beside, lease_seconds)


def own_backend(settings: Settings, folder: Path) -> SandboxBackend:
    """The backend that the settings name, without those beside it; raises InvalidInput as `open_backend`."""
    name = settings.sandbox.backend
    if name == "local":
        return LocalBackend(folder, disk_budget_mb=settings.sandbox.disk_budget_mb)
    for plugin in plugins().values():
        if name in plugin.sandboxes and not plugin.sandboxes[name].beside:
            [brought] = load_with_needs(plugin, plugin.sandboxes[name].open)(settings, folder)
            return cast(SandboxBackend, brought)
    if ":" not in name:
        alone = [kind for kind, each in sandbox_kinds().items() if not each.beside]
        raise InvalidInput(
            f"no sandbox backend {name!r}: give {', '.join(['local', *alone])}, or module:Class"
        )
    return cast(SandboxBackend, imported(name, "the sandbox backend")(folder))


class BackendsBeside:
    """The backends of other stores whose sandboxes this user has had here: a folder for each, beside `folder`.

    Each is opened once, so that it connects to its engine and its clouds at the first look alone. Where the
    settings name a plugin's backend, whose sandboxes are elsewhere, only sandboxes of this host are looked after.
    """

    def __init__(self, settings: Settings, folder: Path) -> None:
        self._settings = settings
        if settings.sandbox.backend in sandbox_kinds():
            local = settings.sandbox.model_copy(update={"backend": "local"})
            self._settings = settings.model_copy(update={"sandbox": local})
        self._folder = folder
        self._opened: dict[Path, SandboxBackend] = {}

    def __call__(self) -> list[SandboxBackend]:
        """The backends that there are now."""
        others = [each for each in self._folder.parent.glob("*") if each != self._folder and _is_mine(each)]
        # built anew: folders that are gone take their backends along
        self._opened = {each: self._opened.get(each) or open_backend(self._settings, each) for each in others}
        return list(self._opened.values())


def _is_mine(folder: Path) -> bool:
    try:
        return folder.stat().st_uid == os.getuid()
    except FileNotFoundError:
        return False
