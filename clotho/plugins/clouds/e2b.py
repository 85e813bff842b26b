"""Machines at E2B: sandboxes of the account, found by their metadata.

They have no names. Where several of a name were made at once, the oldest one is the machine. Each worker that made
one ends the others that it sees afterwards: it can't tell whether their workers saw its own. An image is built into
a template, named by what it is built from, once for all workers.
"""

import hashlib
import math
import re
import shlex
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import e2b
import httpx
from connectrpc.errors import ConnectError

from clotho.config import secret
from clotho.errors import ClothoError, InvalidInput, SandboxLost, SandboxUnavailable
from clotho.plugins.clouds.accounts import E2bAccount
from clotho.plugins.clouds.channels import CloudChannel, Received, Told, open_in_terminal
from clotho.plugins.clouds.config import E2bConfig
from clotho.plugins.clouds.machines import RETRIED_STATUSES, CloudMachines
from clotho.plugins.containers.relay.machine import Found
from clotho.sandbox.backend import SandboxSpec

NAME = "clotho-name"
CONNECT_SECONDS = 60
"""Attaching to a sandbox lets it live for so long at least."""
USER = "root"
STATUS = re.compile(r"\s*(\d{3}): ")
"""Begins the text of errors that the package makes of an answer."""
TERMINAL = e2b.PtySize(rows=24, cols=80)


class E2bMachines(CloudMachines[E2bConfig, e2b.AsyncSandbox]):
    kind, cloud, config = "e2b", "E2B", E2bConfig

    def __init__(self, account: E2bAccount) -> None:
        super().__init__(account.creations_per_second)
        self._account = account
        self.max_lifetime_seconds = account.max_lifetime_seconds

    def clotho_error(self, error: Exception) -> type[ClothoError] | None:
        """By its class, or by the status of the answer; a failed build has none."""
        match error:
            case e2b.NotFoundException() | e2b.SandboxNotRunningException():
                return SandboxLost
            case e2b.AuthenticationException() | e2b.InvalidArgumentException() | e2b.TemplateException():
                return InvalidInput
            case e2b.RateLimitException() | e2b.TimeoutException() | e2b.NotEnoughSpaceException():
                return SandboxUnavailable
            case e2b.SandboxException() | e2b.BuildException():
                said = STATUS.match(str(error))
                status = getattr(error, "status_code", None) or (int(said[1]) if said else None)
                if status is None:
                    return InvalidInput if isinstance(error, e2b.BuildException) else SandboxUnavailable
                return SandboxUnavailable if status >= 500 or status in RETRIED_STATUSES else InvalidInput
            case e2b.ServiceBusyException() | ConnectError() | httpx.HTTPError() | OSError():
                return SandboxUnavailable
        return None

    async def _image(self, config: E2bConfig, spec: SandboxSpec) -> str:
        if config.image is None:
            return str(config.template)
        # E2B takes an even number of MiB
        memory = spec.memory_mb + spec.memory_mb % 2
        built_from = repr((config.image, config.cpus, memory))
        name = f"clotho-{hashlib.sha256(built_from.encode()).hexdigest()[:24]}"
        return await self._built(name, partial(self._build, name, config.image, config.cpus, memory))

    async def _build(self, name: str, image: str, cpus: int, memory_mb: int) -> str:
        with self.told(f"image {image}", InvalidInput):
            if not await e2b.AsyncTemplate.exists(name, **self._options()):
                template = e2b.AsyncTemplate().from_image(image)
                await e2b.AsyncTemplate.build(
                    template, name, cpu_count=cpus, memory_mb=memory_mb, **self._options()
                )
        return name

    async def _create(
        self,
        name: str,
        image: str,
        spec: SandboxSpec,
        config: E2bConfig,
        labels: Mapping[str, str],
        lifetime_seconds: float,
    ) -> None:
        """Make the sandbox. Of its hosts, E2B ranks those that are allowed before those that are denied."""
        listed = None if isinstance(config.network, str) else config.network
        hosts: dict[str, Any] = (
            {"network": {"allow_out": [*listed], "deny_out": [e2b.ALL_TRAFFIC]}} if listed else {}
        )
        await e2b.AsyncSandbox.create(
            image,
            timeout=self._seconds(lifetime_seconds),
            metadata={**labels, NAME: name},
            allow_internet_access=config.network != "none",
            **hosts,
            **self._options(),
        )
        for younger in (await self._listed({NAME: name}))[1:]:
            await e2b.AsyncSandbox.kill(younger.sandbox_id, **self._options())

    async def extend(self, name: str, lifetime_seconds: float) -> None:
        """Extend the machine's life. Beyond the account's plan this is refused: then it ends when it would have."""
        sandbox = await self._sandbox(name)
        with suppress(InvalidInput):
            async with self._told_of(name):
                await sandbox.set_timeout(self._seconds(lifetime_seconds))

    async def _find(self, name: str) -> Found:
        """Find a machine without attaching to it, which would let it live longer."""
        listed = await self._listed({NAME: name})
        if not listed:
            raise SandboxLost(f"E2B has no sandbox {name}")
        known = self._sandboxes.get(name)
        # an older one has shown since
        if known is not None and known.sandbox_id != listed[0].sandbox_id:
            del self._sandboxes[name]
        return _found(listed[0])

    async def _list(self, labels: Mapping[str, str]) -> Sequence[Found]:
        return [_found(each) for each in await self._listed(labels) if NAME in each.metadata]

    async def _put(self, sandbox: e2b.AsyncSandbox, files: Mapping[str, bytes], then: Sequence[str]) -> str:
        for path, content in files.items():
            await sandbox.files.write(path, content, user=USER, use_octet_stream=True)
        await sandbox.commands.run(shlex.join(then), user=USER)  # raises where the command fails
        return ""

    async def _open(self, sandbox: e2b.AsyncSandbox, argv: Sequence[str], told: Told) -> CloudChannel:
        """Through a terminal: what commands print comes as text otherwise."""
        received = Received()
        # 0: for as long as it lasts; the package would end it after 60 s
        terminal = await sandbox.pty.create(TERMINAL, received.put, user=USER, timeout=0)
        write = partial(sandbox.pty.send_stdin, terminal.pid)
        return await open_in_terminal(argv, terminal, write, received, told)

    async def _destroy(self, name: str) -> None:
        """Kill every sandbox of the name: there may be several."""
        self._sandboxes.pop(name, None)
        for each in await self._listed({NAME: name}):
            await e2b.AsyncSandbox.kill(each.sandbox_id, **self._options())

    def _options(self) -> dict[str, Any]:
        """The options of every call. Without `retries` E2B's package would try some calls again by itself."""
        return {"api_key": secret(self._account.api_key_variable, "a key of E2B"), "retries": 0}

    def _seconds(self, lifetime: float) -> int:
        return math.ceil(min(lifetime, self._account.max_lifetime_seconds))

    async def _listed(self, metadata: Mapping[str, str]) -> Sequence[e2b.SandboxInfo]:
        """The running machines with this metadata, the oldest first."""
        query = e2b.SandboxQuery(metadata=dict(metadata), state=[e2b.SandboxState.RUNNING])
        pages = e2b.AsyncSandbox.list(query, **self._options())
        found: list[e2b.SandboxInfo] = []
        while pages.has_next:
            found += await pages.next_items()
        return sorted(found, key=lambda each: (each.started_at, each.sandbox_id))

    async def _sandbox(self, name: str) -> e2b.AsyncSandbox:
        if name not in self._sandboxes:
            found = await self.find(name)
            if found is None:
                raise SandboxLost(f"E2B has no sandbox {name}")
            with self.told(name):
                self._sandboxes[name] = await e2b.AsyncSandbox.connect(
                    found.id, timeout=CONNECT_SECONDS, **self._options()
                )
        return self._sandboxes[name]


def _found(listed: e2b.SandboxInfo) -> Found:
    return Found(listed.metadata[NAME], listed.metadata, running=True, id=listed.sandbox_id)
