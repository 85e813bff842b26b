"""A backend on another machine: every call goes to its server, over a stream that is opened when it is needed.

A stream that ends fails the calls under way with SandboxUnavailable; the next call opens another. Nothing is lost:
sandboxes outlive their server, and all that is asked of them is idempotent.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

from clotho.errors import InvalidInput, SandboxLost
from clotho.plugins.ssh.remote.calls import (
    InstanceDescription,
    RemoteAnswer,
    RemoteCall,
    Verb,
    forwarded,
    hints_of,
    result_of,
)
from clotho.plugins.ssh.remote.connection import Connection
from clotho.plugins.ssh.remote.instance import RemoteInstance
from clotho.sandbox.backend import Labels, SandboxBackend, SandboxInstance, SandboxSpec
from clotho.sandbox.checkpoints import Restore

Opener = Callable[[], Awaitable[Connection]]
"""Connects to a server on the other machine. Raises SandboxUnavailable, InvalidInput for what has to be mended."""

OF_A_HELD = ("system", "evidence", "renew")
"""Calls about a sandbox that there is, as are those that return one."""


class RemoteBackend:
    """`names` are what runs ask for when they want it, whatever the other machine calls its backend.

    Incarnations begin with `place`.
    """

    def __init__(self, names: tuple[str, ...], connect: Opener, place: str = "") -> None:
        self._names = names
        self._place = place
        self._connect = connect
        self._opened: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Task[Connection]] = (
            WeakKeyDictionary()
        )

    @property
    def names(self) -> tuple[str, ...]:
        return self._names

    system = forwarded(SandboxBackend.system)
    evidence = forwarded(SandboxBackend.evidence)
    attach = forwarded(SandboxBackend.attach)
    open_verifier = forwarded(SandboxBackend.open_verifier)
    verify_in_place = forwarded(SandboxBackend.verify_in_place)
    destroy = forwarded(SandboxBackend.destroy)
    renew = forwarded(SandboxBackend.renew)
    leases = forwarded(SandboxBackend.leases)
    reap = forwarded(SandboxBackend.reap)
    expired = forwarded(SandboxBackend.expired)
    probe = forwarded(SandboxBackend.probe)

    async def create(
        self,
        lease: str,
        spec: SandboxSpec,
        labels: Labels | None = None,
        restore: Restore | None = None,
        private: Sequence[Path] = (),
    ) -> RemoteInstance:
        """`private` paths are of this machine: commands on another see none of them."""
        call = _call("create", lease=lease, spec=spec, labels=labels, restore=restore)
        answer = await self._ask(call, None, None if restore is None else restore.blob)
        made = result_of(answer, InstanceDescription)
        again = _call("attach", lease=lease, incarnation=made.incarnation, labels=labels)
        return RemoteInstance(self._ask_held, made, partial(self._found, again), self._place)

    async def forward(self, declared: Verb[..., Any], arguments: dict[str, Any]) -> Any:
        if "incarnation" in arguments:
            arguments["incarnation"] = arguments["incarnation"].removeprefix(self._place)
        call, returns = _call(declared.__name__, **arguments), hints_of(declared)["return"]
        if returns is SandboxInstance:
            find = partial(self._found, call)
            return RemoteInstance(self._ask_held, await find(), find, self._place)
        ask = self._ask_held if call.verb in OF_A_HELD else self._ask
        return result_of(await ask(call), returns)

    async def close(self) -> None:
        """End this loop's stream, and with it the server, not its sandboxes."""
        opened = self._opened.pop(asyncio.get_running_loop(), None)
        if opened is None:
            return
        opened.cancel()
        (connection,) = await asyncio.gather(opened, return_exceptions=True)
        if isinstance(connection, Connection):
            await connection.close()

    async def _found(self, call: RemoteCall) -> InstanceDescription:
        return result_of(await self._ask_held(call), InstanceDescription)

    async def _ask_held(self, call: RemoteCall, to: Path | None = None) -> RemoteAnswer:
        """Ask about a sandbox that there is. Raises SandboxLost where its host has to be mended first."""
        try:
            return await self._ask(call, to)
        except InvalidInput as error:
            raise SandboxLost(f"the sandbox is out of reach: {error}") from error

    async def _ask(self, call: RemoteCall, to: Path | None = None, file: Path | None = None) -> RemoteAnswer:
        return await (await self._connection()).call(call, file, to)

    async def _connection(self) -> Connection:
        """This event loop's connection, opened once for all its calls, even if one of them is cancelled."""
        loop = asyncio.get_running_loop()
        opening = self._opened.get(loop)
        if opening is None or (opening.done() and not _is_open(opening)):
            opening = self._opened[loop] = asyncio.ensure_future(self._connect())
        return await asyncio.shield(opening)


def _call(verb: str, **arguments: Any) -> RemoteCall:
    return RemoteCall(instance=None, verb=verb, arguments=arguments)


def _is_open(opened: asyncio.Task[Connection]) -> bool:
    return not opened.cancelled() and opened.exception() is None and opened.result().is_open
