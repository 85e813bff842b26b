"""PostgreSQL as a child process, which can be killed, and replaced by a copy of it from a backup."""

import asyncio
import os
import shutil
import signal
from pathlib import Path

from chaos.cluster.programs import Programs, run
from clotho.processes.child import ChildProcess
from clotho.processes.ports import HOST, free_port

USER = "temporal"
AS_POSTGRES = ("setpriv", "--reuid", "postgres", "--regid", "postgres", "--clear-groups")
READY_SECONDS = 60.0


class Postgres:
    """A server with the databases of Temporal; its files are in `folder`, through which everybody may pass."""

    def __init__(self, programs: Programs, folder: Path) -> None:
        self._programs = programs
        self._folder = folder
        self.port = free_port()

    async def create(self) -> None:
        """Make the databases, and start it."""
        self._folder.mkdir()
        shutil.chown(self._folder, "postgres", "postgres")
        data = self._folder / "data"
        await run(
            *AS_POSTGRES, str(self._programs.postgres / "initdb"), *("-A", "trust", "-U", USER, str(data))
        )
        self._serve(data)
        await self.start()
        for database in ("temporal", "visibility"):
            await self.psql("postgres", "-c", f"CREATE DATABASE {database}")
            await self._make_tables(database)

    async def _make_tables(self, database: str) -> None:
        """Make the tables that `temporal-sql-tool` would make; it would be one more program to build."""
        file, version = self._programs.schema(database)
        await self.psql(
            database,
            *("-f", str(file)),
            "-c",
            "CREATE TABLE schema_version (version_partition INT NOT NULL, db_name VARCHAR(255) NOT NULL,"
            " creation_time TIMESTAMP, curr_version VARCHAR(64), min_compatible_version VARCHAR(64),"
            " PRIMARY KEY (version_partition, db_name))",
            "-c",
            f"INSERT INTO schema_version VALUES (0, '{database}', now(), '{version}', '1.0')",
        )

    async def psql(self, database: str, *arguments: str) -> str:
        program = str(self._programs.postgres / "psql")
        place = ("-h", HOST, "-p", str(self.port), "-U", USER, "-d", database)
        return await run(program, *place, "-q", "-At", "-v", "ON_ERROR_STOP=1", *arguments)

    @property
    def pid(self) -> int | None:
        return self._process.pid

    async def database_bytes(self) -> int:
        """Bytes that Temporal's two databases take on disk."""
        names = "datname IN ('temporal', 'visibility')"
        return int(
            await self.psql(
                "postgres", "-c", f"SELECT sum(pg_database_size(datname)) FROM pg_database WHERE {names}"
            )
        )

    async def start(self) -> None:
        await self._process.start()
        async with asyncio.timeout(READY_SECONDS):
            while True:
                try:
                    await self.psql("postgres", "-c", "SELECT 1")
                    return
                except RuntimeError:
                    if not self._process.running:
                        raise RuntimeError(f"PostgreSQL: {self._process.last_words}") from None
                    await asyncio.sleep(0.1)

    async def stop(self) -> None:
        """Stop, and end connections."""
        await self._end(signal.SIGINT)

    async def crash(self) -> None:
        """Stop without a checkpoint, so that the next start recovers from the write-ahead log."""
        await self._end(signal.SIGQUIT)

    async def back_up(self) -> None:
        """Copy it while it serves."""
        program = str(self._programs.postgres / "pg_basebackup")
        place = ("-h", HOST, "-p", str(self.port), "-U", USER, "-D", str(self._folder / "backup"))
        await run(*AS_POSTGRES, program, *place, "--checkpoint=fast", "--wal-method=fetch")

    async def promote_backup(self) -> None:
        """Go on with the copy in its place; what was written since is lost."""
        await self.crash()
        shutil.rmtree(self._folder / "data")
        (self._folder / "backup").rename(self._folder / "data")
        await self.start()

    def _serve(self, data: Path) -> None:
        # A change of the user clears the wish for a signal at the parent's death: setpriv has it made afterwards.
        command = [*AS_POSTGRES, "--pdeathsig", "INT", str(self._programs.postgres / "postgres")]
        settings = {
            "listen_addresses": HOST,
            "unix_socket_directories": str(self._folder),
            "max_connections": "200",
            "shared_buffers": "64MB",
        }
        command += ["-D", str(data), "-p", str(self.port)]
        command += [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        self._process = ChildProcess(command, self._folder / "log")

    async def _end(self, number: signal.Signals) -> None:
        if self._process.running and self._process.pid is not None:
            os.kill(self._process.pid, number)
            await self._process.wait()
