"""Instances elsewhere: a machine with a supervisor, and the way to it."""

import errno
import secrets
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from clotho.errors import ClothoError, SandboxUnavailable
from clotho.plugins.containers.relay.control import RelayedControl
from clotho.plugins.containers.relay.loop import blocking, renewal, within
from clotho.plugins.containers.relay.machine import Base, Machine
from clotho.plugins.containers.relay.reconnecting import Relay
from clotho.plugins.containers.relay.records import Instance, RelayFolder, RelayRecord, scope
from clotho.plugins.containers.relay.requests import Full, engine_is_full, filled_by_commands
from clotho.plugins.containers.relay.stream import CLOSE_SECONDS
from clotho.plugins.containers.relay.view import RELAY, RelayView
from clotho.sandbox.exhaustion import Bounds
from clotho.sandbox.supervised.files import NOT_THERE
from clotho.sandbox.supervised.folders import GRACE_SECONDS
from clotho.sandbox.supervised.instance import SupervisedSandbox

READY_SECONDS = 120.0
CREATE_SECONDS = 1_500.0
"""Seconds that a platform has for making a machine, beyond those after which its own package gives up."""
MAKING_SECONDS = 600.0
"""Seconds in which a machine and its supervisor are there, and the first renewal has come."""
LIFETIME_SECONDS = 86_400.0
"""The longest life of a machine of a platform that can't be asked for more later."""
OF_THE_BACKEND, ENDS, MADE_BY = "clotho.relayed", "clotho.ends", "clotho.made-by"
"""Labels: whose machine it is, the Unix seconds at which its first lease is over, and that a relay is its way."""
MADE_BY_RELAY = {MADE_BY: "relay"}
IN_THE_WAY = frozenset({*NOT_THERE, errno.EEXIST, errno.ENOTEMPTY})


class Instances:
    """The instances of one backend. All methods block."""

    def __init__(self, root: Path, machine: Machine) -> None:
        self._root = root
        self._machine = machine
        self._controls: dict[str, tuple[RelayFolder, RelayedControl]] = {}

    def start(self, folder: RelayFolder, view: RelayView, base: Base) -> str:
        """Make the machine of an instance, and have its supervisor serve; returns its incarnation."""
        record, name = view.record, view.instance.machine
        lifetime = self._first_lifetime(record)
        start = view.start() if self._machine.starts_first else None
        labels = self._labels(record, time.time() + lifetime)
        made = self._machine.create(name, base, record.spec, labels, lifetime, start)
        blocking(made, CREATE_SECONDS)
        if start is None:
            blocking(self._machine.put(name, view.files))
            blocking(within(READY_SECONDS, "beginning a supervisor", self._begin(name, view.begin())))
        return self._ready(name, self.control(folder, view.instance))

    async def _begin(self, name: str, command: Sequence[str]) -> None:
        channel = await self._machine.open(name, command)
        try:
            # the program ends as soon as its child serves, or can't
            while await channel.receive():
                pass
        finally:
            await within(CLOSE_SECONDS, "closing a stream", channel.close())

    def _ready(self, name: str, control: RelayedControl) -> str:
        deadline = time.monotonic() + READY_SECONDS
        while (incarnation := control.incarnation()) is None:
            found = blocking(self._machine.find(name))
            if found is None or not found.running:
                raise SandboxUnavailable("the sandbox's machine has ended before its supervisor began")
            if time.monotonic() > deadline:
                raise SandboxUnavailable("the sandbox's supervisor doesn't begin")
            time.sleep(0.02)
        return incarnation

    def make_folders(
        self, folder: RelayFolder, view: RelayView, refused: type[ClothoError], *, clear: bool
    ) -> None:
        """Make the folders that commands write to. Raises `refused` where something else is in one's place."""
        control = self.control(folder, view.instance)
        try:
            for path, mode in view.folders.items():
                control.make_folder(path, mode, clear=clear)
            for path, target in view.links.items():
                control.link_folder(path, target)
        except OSError as error:
            if error.errno not in IN_THE_WAY:
                raise
            raise refused(
                f"the sandbox's files have no room for the folder {path}: {error.strerror}"
            ) from error

    def _first_lifetime(self, record: RelayRecord) -> float:
        """As short as can be: if this process dies, nobody may be left to end the machine."""
        extended = MAKING_SECONDS + record.spec.lease_seconds + GRACE_SECONDS
        wanted = extended if self._machine.extends else LIFETIME_SECONDS
        return min(wanted, self._machine.max_lifetime_seconds or wanted)

    def _labels(self, record: RelayRecord, ends: float) -> dict[str, str]:
        owner = {} if record.labels is None else record.labels.model_dump()
        labels = {f"clotho.{name}": value for name, value in owner.items()}
        own = {OF_THE_BACKEND: scope(self._root), ENDS: str(round(ends)), "clotho.lease": record.lease}
        return {**MADE_BY_RELAY, **own, **labels}

    def control(self, folder: RelayFolder, instance: Instance) -> RelayedControl:
        """One for all that use an instance in this process: they share its stream."""
        known = self._controls.get(instance.token)
        if known is None:
            relay = Relay(partial(self._machine.open, instance.machine, RELAY), instance.token)
            control = RelayedControl(
                instance.machine,
                relay,
                partial(self._renewed, folder, instance.machine),
                self.full,
            )
            # another thread may have made one since: both go on with the first
            known = self._controls.setdefault(instance.token, (folder, control))
        return known[1]

    @property
    def full(self) -> Full:
        return engine_is_full if self._machine.starts_first else filled_by_commands

    def _renewed(self, folder: RelayFolder, machine: str, seconds: float) -> None:
        # first: it fails where the sandbox was destroyed, whose machine must not live on
        folder.set_deadline(seconds)
        blocking(renewal(machine, self._machine.extend(machine, seconds + GRACE_SECONDS)))

    def sandbox(self, folder: RelayFolder, view: RelayView, incarnation: str) -> SupervisedSandbox:
        bounds = Bounds((), view.record.spec.max_processes, None)
        return SupervisedSandbox(self.control(folder, view.instance), incarnation, view.layout(), bounds)

    def end(self, instance: Instance) -> None:
        """Destroy its machine."""
        self._close(instance.token)
        blocking(self._machine.destroy(instance.machine))

    def _close(self, token: str) -> None:
        known = self._controls.pop(token, None)
        if known is not None:
            blocking(known[1].relay.close())

    def close_ended(self) -> None:
        """Close the streams to those that other processes have ended."""
        for token, (folder, _) in tuple(self._controls.items()):
            if not folder.files.exists():
                self._close(token)

    def close(self) -> None:
        """Close all streams, and the clients; instances go on."""
        for token in tuple(self._controls):
            self._close(token)
        blocking(self._machine.close())


def drawn(machine: str, private: str | None = None) -> Instance:
    return Instance(machine=machine, token=secrets.token_hex(16), private=private)
