"""An S3 server for tests and benchmarks: versitygw, which keeps objects as files in a folder."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

from clotho.processes.child import ChildProcess
from clotho.processes.ports import free_port
from tests.go_programs import go_program
from tests.support import PATIENCE_SECONDS

GO_PACKAGE = "github.com/versity/versitygw/cmd/versitygw@v1.8.0"
HEALTH = "/health"
FOLDERS = ("objects", "metadata", "users")


@dataclass(frozen=True)
class S3Server:
    """Where a server is, and the credentials of its administrator; `binary` is what it is administered with."""

    binary: Path
    endpoint: str
    access_key: str = "administrator"
    secret_key: str = "not-a-secret"

    @classmethod
    def on_free_port(cls, binary: Path) -> "S3Server":
        return cls(binary, f"http://127.0.0.1:{free_port()}")

    @property
    def administrator(self) -> dict[str, str]:
        """Environment variables that versitygw takes the administrator's credentials from."""
        return {"ROOT_ACCESS_KEY": self.access_key, "ROOT_SECRET_KEY": self.secret_key}

    def command(self, program: Path, folder: Path, access_log: Path | None = None) -> list[str]:
        """A command line that serves the FOLDERS in `folder`; `access_log` gets a line for each request."""
        objects, metadata, users = (str(folder / name) for name in FOLDERS)
        logged = [] if access_log is None else ["--access-log", str(access_log)]
        return [
            *(str(program), "--quiet", "--port", self.endpoint.removeprefix("http://"), *logged),
            *("--keep-alive", "--health", HEALTH, "--iam-dir", users, "--iam-cache-disable"),
            *("posix", "--sidecar", metadata, objects),
        ]

    async def create_user(self, name: str, secret: str, role: str) -> None:
        await self._administer("create-user", "--access", name, "--secret", secret, "--role", role)

    async def delete_user(self, name: str) -> None:
        await self._administer("delete-user", "--access", name)

    async def ready(self) -> None:
        """Return when the server answers; raises TimeoutError."""
        async with asyncio.timeout(PATIENCE_SECONDS), httpx.AsyncClient(timeout=PATIENCE_SECONDS) as client:
            while True:
                try:
                    (await client.get(self.endpoint + HEALTH)).raise_for_status()
                    return
                except httpx.HTTPError:
                    await asyncio.sleep(0.02)

    async def _administer(self, *command: str) -> None:
        process = await asyncio.create_subprocess_exec(
            *(str(self.binary), "admin", "--endpoint-url", self.endpoint),
            *("--access", self.access_key, "--secret", self.secret_key),
            *command,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        said, _ = await process.communicate()
        if process.returncode != 0:
            raise RuntimeError(f"{command[0]}: {said.decode()}")


@asynccontextmanager
async def s3_server_process(
    binary: Path, folder: Path, access_log: Path | None = None
) -> AsyncIterator[S3Server]:
    """A server as a child process, with its files in `folder`."""
    for name in FOLDERS:
        (folder / name).mkdir(parents=True)
    server = S3Server.on_free_port(binary)
    assignments = [f"{name}={value}" for name, value in server.administrator.items()]
    command = ["env", *assignments, *server.command(binary, folder, access_log)]
    process = ChildProcess(command, folder / "s3-server.log")
    await process.start()
    try:
        await server.ready()
        yield server
    finally:
        await process.stop()


async def s3_server_binary(cache: Path, *, on_path: Path | None, go: Path | None) -> Path | None:
    """The one that is there, else one built with `go`; None without either."""
    return await go_program("versitygw", GO_PACKAGE, cache, on_path=on_path, go=go)
