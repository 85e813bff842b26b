"""Platforms and streams that never answer: each wait for one ends, and no thread is held for good."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest

from clotho.errors import SandboxUnavailable
from clotho.plugins.containers.config import DockerConfig
from clotho.plugins.containers.relay.backend import RelayedBackend
from clotho.plugins.containers.relay.control import RelayedControl
from clotho.plugins.containers.relay.loop import blocking
from clotho.plugins.containers.relay.machine import Base, Channel, Found, Start
from clotho.plugins.containers.relay.reconnecting import Relay
from clotho.plugins.containers.relay.requests import filled_by_commands
from clotho.plugins.containers.relay.stream import MAGIC
from clotho.sandbox.backend import SandboxSpec
from clotho.sandbox.threads import with_files, with_sandbox
from tests.support import PATIENCE_SECONDS

SHORT_SECONDS = 0.1
LEASES = 20
"""More than fill every thread for sandboxes, if each held as many as it may."""


class Unending:
    """A channel that greets like a relay, and then hangs in what `stuck` names."""

    def __init__(self, *stuck: str) -> None:
        self._stuck = stuck
        self._greeting = [MAGIC]
        self._sent: asyncio.Queue[bytes] = asyncio.Queue()

    async def send(self, content: bytes) -> None:
        if "send" in self._stuck and content[12:13] != b"H":
            await asyncio.Event().wait()
        await self._sent.put(content)

    async def receive(self) -> bytes:
        if self._greeting and "receive" not in self._stuck:
            return self._greeting.pop()
        while (asked := await self._sent.get())[12:13] != b"H":
            pass
        return asked[:3] + b"\x09" + asked[4:12] + b"\0"

    async def close(self) -> None:
        if "close" in self._stuck:
            await asyncio.Event().wait()


class StuckMachines:
    """Machines of a platform that hangs in one of its steps."""

    kind, starts_first, extends = "docker", False, True
    max_lifetime_seconds = remove_ended = None

    def __init__(self, stuck: str) -> None:
        self._stuck = stuck

    async def _step(self, name: str) -> None:
        while self._stuck in (name, f"{name}, cancelled or not"):
            try:
                await asyncio.sleep(3600)
            except asyncio.CancelledError:
                if self._stuck == name:
                    raise

    async def base(self, spec: SandboxSpec) -> Base:
        await self._step("base")
        return Base(image="any")

    async def create(
        self,
        name: str,
        base: Base,
        spec: SandboxSpec,
        labels: Mapping[str, str],
        lifetime_seconds: float,
        start: Start | None = None,
    ) -> None:
        await self._step("create")

    async def extend(self, name: str, lifetime_seconds: float) -> None: ...

    async def find(self, name: str) -> Found | None:
        await self._step("find")
        return None

    async def put(self, name: str, files: Mapping[str, bytes]) -> None:
        await self._step("put")

    async def open(self, name: str, argv: Sequence[str]) -> Channel:
        await self._step("open")
        return Unending("receive", "close") if self._stuck == "receive" else Unending(self._stuck)

    async def snapshot(self, name: str) -> Base | None:
        return None

    async def destroy(self, name: str) -> None:
        await self._step("destroy")

    async def list(self, labels: Mapping[str, str]) -> Sequence[Found]:
        return ()

    async def close(self) -> None: ...


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (
        "instances.READY_SECONDS",
        "instances.CLOSE_SECONDS",
        "stream.SEND_SECONDS",
        "stream.CLOSE_SECONDS",
    ):
        monkeypatch.setattr(f"clotho.plugins.containers.relay.{name}", SHORT_SECONDS)
    for name in ("loop.BLOCKING_SECONDS", "backend.IMAGE_SECONDS", "instances.CREATE_SECONDS"):
        monkeypatch.setattr(f"clotho.plugins.containers.relay.{name}", 4 * SHORT_SECONDS)


STEPS = ("base", "create", "create, cancelled or not", "put", "open", "receive", "close", "find", "destroy")


@pytest.mark.attack("platforms", "a platform that hangs in one step, for each lease of a worker")
@pytest.mark.parametrize("stuck", STEPS)
async def test_a_platform_that_hangs_in_one_step_holds_no_thread(tmp_path: Path, stuck: str) -> None:
    backend = RelayedBackend(tmp_path, StuckMachines(stuck))
    spec = SandboxSpec(backend=DockerConfig(image="any"))
    async with asyncio.timeout(PATIENCE_SECONDS):
        made = [asyncio.create_task(backend.create(f"stuck/r{n}/lease/0", spec)) for n in range(LEASES)]
        failed = await asyncio.gather(*made, return_exceptions=True)
        assert {type(each) for each in failed} == {SandboxUnavailable}
        served = [with_sandbox(f"another/r{n}/lease/0", lambda: "served") for n in range(LEASES)]
        assert await asyncio.gather(*served) == ["served"] * LEASES


def control_over(*stuck: str) -> RelayedControl:
    async def opener() -> Channel:
        return Unending(*stuck)

    relay = Relay(opener, "0" * 32)
    return RelayedControl("any", relay, lambda seconds: None, filled_by_commands)


def open_pipe(control: RelayedControl) -> None:
    with control.pipe("f/any/stream", writing=True):
        pass


@pytest.mark.attack("platforms", "a stream that never answers or never closes")
@pytest.mark.parametrize("stuck", [(), ("send",), ("close",), ("send", "close")])
@pytest.mark.parametrize("ask", [open_pipe, RelayedControl.require_room, RelayedControl.incarnation])
async def test_a_stream_that_never_answers_holds_no_thread(
    stuck: tuple[str, ...], ask: Callable[[RelayedControl], object]
) -> None:
    control = control_over(*stuck)
    async with asyncio.timeout(PATIENCE_SECONDS):
        with pytest.raises(SandboxUnavailable):
            await with_files("any", ask, control)
        await with_files("any", blocking, control.relay.close())
