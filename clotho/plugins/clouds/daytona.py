"""Machines at Daytona: sandboxes of the account, found by name and by labels.

Daytona keeps what it has built from an image. It destroys a sandbox whose time to live is over: every renewal
of its lease sets that anew.
"""

import math
import secrets
import shlex
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager

import aiohttp
import daytona

from clotho.config import secret
from clotho.errors import ClothoError, InvalidInput, SandboxLost, SandboxUnavailable
from clotho.plugins.clouds.accounts import DaytonaAccount
from clotho.plugins.clouds.channels import CloudChannel, Received, Told, open_in_terminal
from clotho.plugins.clouds.config import DaytonaConfig
from clotho.plugins.clouds.machines import RETRIED_STATUSES, CloudMachines
from clotho.plugins.containers.relay.machine import Found
from clotho.sandbox.backend import SandboxSpec

CREATE_SECONDS = 600
"""Seconds in which a sandbox is there, its image built."""
MOVE_SECONDS = 60
USER = "root"


class DaytonaMachines(CloudMachines[DaytonaConfig, daytona.AsyncSandbox]):
    kind, cloud, config = "daytona", "Daytona", DaytonaConfig

    def __init__(self, account: DaytonaAccount) -> None:
        super().__init__(account.creations_per_second)
        self._account = account
        self._client: daytona.AsyncDaytona | None = None

    def clotho_error(self, error: Exception) -> type[ClothoError] | None:
        match error:
            case daytona.DaytonaNotFoundError() | daytona.DaytonaGoneError():
                return SandboxLost
            # "Total CPU limit exceeded", with 400 or 403: the account's other sandboxes end, and there is room
            case daytona.DaytonaError() if "limit exceeded" in str(error).lower():
                return SandboxUnavailable
            case daytona.DaytonaError(status_code=int(status)) if status not in RETRIED_STATUSES:
                return InvalidInput if 400 <= status < 500 else SandboxUnavailable
            case daytona.DaytonaError() | aiohttp.ClientError() | OSError():
                return SandboxUnavailable
        return None

    async def _image(self, config: DaytonaConfig, spec: SandboxSpec) -> str:
        """Daytona builds what an image needs when the first sandbox of it is made."""
        return config.image

    async def _create(
        self,
        name: str,
        image: str,
        spec: SandboxSpec,
        config: DaytonaConfig,
        labels: Mapping[str, str],
        lifetime_seconds: float,
    ) -> None:
        asked = daytona.CreateSandboxFromImageParams(
            name=name,
            image=image,
            os_user=USER,
            labels=dict(labels),
            resources=daytona.Resources(
                cpu=config.cpus,
                memory=_gibibytes(spec.memory_mb),
                disk=_gibibytes(min(spec.disk_mb, self._account.max_disk_mb)),
            ),
            network_block_all=config.network == "none",
            domain_allow_list=",".join(config.domains) or None,
            network_allow_list=",".join(config.networks) or None,
            # 0: it isn't stopped for being idle; one that has stopped all the same is deleted at once
            auto_stop_interval=0,
            auto_delete_interval=0,
            ttl_minutes=_minutes(lifetime_seconds),
        )
        try:
            self._sandboxes[name] = await self._opened().create(asked, timeout=CREATE_SECONDS)
        except daytona.DaytonaConflictError:  # another worker makes it
            with self.told(name, SandboxUnavailable):  # it may be destroyed meanwhile
                made = await self._opened().get(name)
                await made.wait_for_sandbox_start(CREATE_SECONDS)

    async def extend(self, name: str, lifetime_seconds: float) -> None:
        sandbox = await self._sandbox(name)
        async with self._told_of(name):
            await sandbox.set_ttl(_minutes(lifetime_seconds))

    async def _find(self, name: str) -> Found:
        self._sandboxes[name] = sandbox = await self._opened().get(name)
        return _found(sandbox)

    async def _list(self, labels: Mapping[str, str]) -> Sequence[Found]:
        query = daytona.ListSandboxesQuery(labels=dict(labels))
        return [_found(each) async for each in self._opened().list(query)]

    async def _put(
        self, sandbox: daytona.AsyncSandbox, files: Mapping[str, bytes], then: Sequence[str]
    ) -> str:
        await sandbox.fs.upload_files(
            [daytona.FileUpload(source=content, destination=path) for path, content in files.items()]
        )
        moved = await sandbox.process.exec(shlex.join(then), timeout=MOVE_SECONDS)
        return f"sh ended with {moved.exit_code}: {moved.result}" if moved.exit_code else ""

    async def _open(self, sandbox: daytona.AsyncSandbox, argv: Sequence[str], told: Told) -> CloudChannel:
        """Through a terminal: what commands print comes as text otherwise."""
        received, session = Received(), f"clotho-{secrets.token_hex(8)}"
        terminal = await sandbox.process.create_pty_session(session, received.put, cwd="/")
        return await open_in_terminal(argv, terminal, terminal.send_input, received, told)

    async def _destroy(self, name: str) -> None:
        if await self.find(name) is not None:
            await self._sandboxes.pop(name).delete(wait=True)

    async def close(self) -> None:
        await super().close()
        if self._client is not None:
            await self._client.close()
            self._client = None

    def _opened(self) -> daytona.AsyncDaytona:
        if self._client is None:
            key = secret(self._account.api_key_variable, "a key of Daytona")
            config = daytona.DaytonaConfig(api_key=key, target=self._account.target)
            self._client = daytona.AsyncDaytona(config)
        return self._client

    @asynccontextmanager
    async def _told_of(self, name: str) -> AsyncIterator[None]:
        """Daytona refuses requests to a sandbox that has stopped as if they were wrong."""
        try:
            async with super()._told_of(name):
                yield
        except InvalidInput as refusal:
            found = await self.find(name)
            self._sandboxes.pop(name, None)
            if found is None or not found.running:
                raise SandboxLost(f"Daytona's sandbox {name} has stopped") from refusal
            raise


def _found(sandbox: daytona.AsyncSandbox) -> Found:
    return Found(sandbox.name, sandbox.labels, running=sandbox.state == daytona.SandboxState.STARTED)


def _minutes(seconds: float) -> int:
    return max(1, math.ceil(seconds / 60))


def _gibibytes(mebibytes: int) -> int:
    return max(1, math.ceil(mebibytes / 1024))
