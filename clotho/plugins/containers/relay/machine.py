"""The interface of platforms elsewhere: machines by name, files put into them, and streams to programs inside.

A machine is what the platform calls a container or a sandbox. The supervisor runs in it, and a relay beside it for
each stream that is open: jobs, files, checkpoints and verification are the relayed backend's, for every platform.

All methods are called on one event loop, which lives as long as the process: clients may be kept for it. They
raise SandboxUnavailable for what may go better later (outages, rate limits, time-outs: Temporal tries again),
InvalidInput for what the user has to change (an image that doesn't exist, credentials, a quota that is never
enough), and SandboxLost for a machine that is gone where one is needed. They try nothing again by themselves.
"""

from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from clotho.frozen_model import FrozenModel
from clotho.sandbox.backend import SandboxSpec


class Channel(Protocol):
    """A stream of bytes to the standard input of one program in a machine, and from its standard output.

    Bytes arrive whole, once and in their order, in pieces of any size. The program's standard error is no part
    of it.
    """

    async def send(self, content: bytes) -> None:
        """Return when `content` is on its way. Raises SandboxUnavailable where the stream has ended."""

    async def receive(self) -> bytes:
        """The next bytes, at least one; b"" when the stream or the program has ended, however that came.

        It is awaited by one task at a time, beside `send`.
        """

    async def close(self) -> None:
        """End the stream, and with it the program's standard input; may be called again."""


class Base(FrozenModel):
    """An image that machines are made from, once it is there, and what is known of it."""

    image: str
    """The image for `create`: an id that goes on meaning the same."""
    architecture: Literal["x86_64", "aarch64"] = "x86_64"
    workdir: str = ""
    """The image's working directory; empty where it has none, or can't be known."""
    home: str = ""
    """The home that the image has for the user; empty: the configuration's."""
    environment: dict[str, str] = {}
    """The image's own variables."""
    user: str = ""
    """The user of the sandbox's commands, by name or id; empty: root."""


@dataclass(frozen=True)
class Start:
    """The supervisor, as the first process of a machine."""

    argv: Sequence[str]
    workdir: str
    environment: Mapping[str, str]
    files: Mapping[str, bytes]
    """To be there before it starts, as `put` puts them."""


@dataclass(frozen=True)
class Found:
    """A machine that there is."""

    name: str
    labels: Mapping[str, str]
    running: bool
    """False for one that has ended, and is left to be destroyed."""
    id: str = ""
    """The platform's own, where another machine may come to have the name of one that has ended."""


class Machine(Protocol):
    """A platform on which machines are made. Names are `[a-z0-9-]`, at most 60 characters, and are the caller's."""

    @property
    def kind(self) -> str:
        """The `kind` of the configurations that this platform makes machines of: `docker`, `modal`, …"""

    @property
    def starts_first(self) -> bool:
        """Whether `create` runs its `start` as process 1 of the machine, which can't be killed from inside.

        Elsewhere `start` is None, and the caller starts the supervisor with `put` and `open`.
        """

    @property
    def max_lifetime_seconds(self) -> float | None:
        """The longest life that `create` can ask for; None: no bound."""

    @property
    def extends(self) -> bool:
        """Whether a machine can live for longer than `create` asked for: as long as its lease is renewed."""

    @property
    def remove_ended(self) -> Callable[[Found], Coroutine[Any, Any, bool]] | None:
        """What removes a machine that has ended, by its id, and tells whether it did: never one that runs.

        None where no machine that has ended is kept.
        """

    async def base(self, spec: SandboxSpec) -> Base:
        """The image that `spec.backend` asks for, pulled or built where that is due, once for all that wait."""

    async def create(
        self,
        name: str,
        base: Base,
        spec: SandboxSpec,
        labels: Mapping[str, str],
        lifetime_seconds: float,
        start: Start | None = None,
    ) -> None:
        """Make and start the machine, unless one of this name runs: then it is left as it is.

        The platform ends it after `lifetime_seconds` by itself, where it can. Its bounds (memory, processors) and
        network are those of `spec` and its configuration; what can't be had is refused, never left out.
        """

    async def extend(self, name: str, lifetime_seconds: float) -> None:
        """Let it live for so long from now, where the platform can; nothing happens elsewhere."""

    async def find(self, name: str) -> Found | None: ...

    async def put(self, name: str, files: Mapping[str, bytes]) -> None:
        """Write files by absolute path, as root where that can be had, readable and executable for everybody.

        Folders on the way are made. A file is never seen half written by a program that `open` starts afterwards.
        """

    async def open(self, name: str, argv: Sequence[str]) -> Channel:
        """Run a program in the machine, as root where that can be had, and return the stream to it.

        The program may end whenever it likes; it is asked for nothing but its streams.
        """

    async def snapshot(self, name: str) -> Base | None:
        """Keep the machine's files as an image for another; None where the platform can't.

        It is deleted with the machine.
        """

    async def destroy(self, name: str) -> None:
        """End the machine, if it is there, and delete its files and snapshots."""

    async def list(self, labels: Mapping[str, str]) -> Sequence[Found]:
        """All machines that carry these labels, those that have ended too."""

    async def close(self) -> None:
        """Close the clients; machines go on."""
