"""A backend on another machine: every call goes to its server, over a stream that is opened when it is needed.

A stream that ends fails the calls under way with SandboxUnavailable; the next call opens another. Nothing is lost:
sandboxes outlive their server, and all that is asked of them is idempotent.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from pydantic import TypeAdapter

from clotho.errors import InvalidInput, SandboxLost
from clotho.plugins.ssh.remote.calls import InstanceDescription, RemoteAnswer, RemoteCall
from clotho.plugins.ssh.remote.connection import Connection
from clotho.plugins.ssh.remote.instance import NOTHING, RemoteInstance, result_of
from clotho.sandbox.backend import Labels, LeaseRecord, SandboxSpec
from clotho.sandbox.checkpoints import Restore
from clotho.sandbox.exhaustion import Evidence
from clotho.sandbox.isolation import IsolationReport
from clotho.sandbox.verification import USUAL, VerifierSetup

T = TypeVar("T")

Opener = Callable[[], Awaitable[Connection]]
"""Connects to a server on the other machine. Raises SandboxUnavailable, InvalidInput for what has to be mended."""

_INSTANCE = TypeAdapter(InstanceDescription)
_TEXT = TypeAdapter(str)
_NAMES: TypeAdapter[Sequence[str]] = TypeAdapter(Sequence[str])
_LEASES: TypeAdapter[Sequence[LeaseRecord]] = TypeAdapter(Sequence[LeaseRecord])
_REPORT = TypeAdapter(IsolationReport)
_EVIDENCE: TypeAdapter[frozenset[Evidence]] = TypeAdapter(frozenset[Evidence])


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

    async def system(self, lease: str) -> str:
        return result_of(await self._ask_held(_call("system", lease=lease)), _TEXT)

    async def evidence(self, lease: str) -> frozenset[Evidence]:
        return result_of(await self._ask_held(_call("evidence", lease=lease)), _EVIDENCE)

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
        made = result_of(answer, _INSTANCE)
        again = _call("attach", lease=lease, incarnation=made.incarnation, labels=labels)
        return RemoteInstance(self._ask_held, made, partial(self._found, again), self._place)

    async def attach(self, lease: str, incarnation: str, labels: Labels | None = None) -> RemoteInstance:
        theirs = incarnation.removeprefix(self._place)
        return await self._instance("attach", lease=lease, incarnation=theirs, labels=labels)

    async def open_verifier(
        self,
        lease: str,
        epoch: int,
        hidden_files: Mapping[str, bytes],
        labels: Labels | None = None,
        setup: VerifierSetup = USUAL,
    ) -> RemoteInstance:
        asked = {"lease": lease, "epoch": epoch, "labels": labels, "setup": setup}
        return await self._instance("open_verifier", hidden_files=hidden_files, **asked)

    async def verify_in_place(
        self, lease: str, incarnation: str, labels: Labels | None = None, setup: VerifierSetup = USUAL
    ) -> RemoteInstance:
        theirs = incarnation.removeprefix(self._place)
        asked = {"lease": lease, "incarnation": theirs, "labels": labels, "setup": setup}
        return await self._instance("verify_in_place", **asked)

    async def destroy(self, lease: str, labels: Labels | None = None) -> None:
        await self._call(NOTHING, "destroy", lease=lease, labels=labels)

    async def renew(self, lease: str, seconds: float) -> None:
        result_of(await self._ask_held(_call("renew", lease=lease, seconds=seconds)), NOTHING)

    async def leases(self) -> Sequence[LeaseRecord]:
        return await self._call(_LEASES, "leases")

    async def reap(self) -> Sequence[str]:
        return await self._call(_NAMES, "reap")

    async def expired(self) -> Sequence[str]:
        return await self._call(_NAMES, "expired")

    async def probe(self) -> IsolationReport:
        return await self._call(_REPORT, "probe")

    async def close(self) -> None:
        """End this loop's stream, and with it the server, not its sandboxes."""
        opened = self._opened.pop(asyncio.get_running_loop(), None)
        if opened is None:
            return
        opened.cancel()
        (connection,) = await asyncio.gather(opened, return_exceptions=True)
        if isinstance(connection, Connection):
            await connection.close()

    async def _instance(self, verb: str, **arguments: Any) -> RemoteInstance:
        find = partial(self._found, _call(verb, **arguments))
        return RemoteInstance(self._ask_held, await find(), find, self._place)

    async def _found(self, call: RemoteCall) -> InstanceDescription:
        return result_of(await self._ask_held(call), _INSTANCE)

    async def _call(self, returns: TypeAdapter[T], verb: str, **arguments: Any) -> T:
        return result_of(await self._ask(_call(verb, **arguments)), returns)

    async def _ask_held(self, call: RemoteCall, to: Path | None = None) -> RemoteAnswer:
        """Ask about a sandbox that there is. Raises SandboxLost where its host has to be mended first."""
        try:
            return await self._ask(call, to)
        except InvalidInput as error:
            raise SandboxLost(f"the sandbox is out of reach: {error}") from error

    async def _ask(self, call: RemoteCall, to: Path | None = None, file: Path | None = None) -> RemoteAnswer:
        return await (await self._connection()).call(call, file, to)

    async def _connection(self) -> Connection:
        """This loop's: opened once for all calls that need it, also where one of them is given up."""
        loop = asyncio.get_running_loop()
        opening = self._opened.get(loop)
        if opening is None or (opening.done() and not _is_open(opening)):
            opening = self._opened[loop] = asyncio.ensure_future(self._connect())
        return await asyncio.shield(opening)


def _call(verb: str, **arguments: Any) -> RemoteCall:
    return RemoteCall(instance=None, verb=verb, arguments=arguments)


def _is_open(opened: asyncio.Task[Connection]) -> bool:
    return not opened.cancelled() and opened.exception() is None and opened.result().is_open
