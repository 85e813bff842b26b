"""Finds or builds the programs of a cluster: `ip`, PostgreSQL and Temporal's production server."""

import asyncio
import fcntl
import json
import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from clotho.config import cache_folder
from clotho.host import program_on_path
from tests.go_programs import go_program
from tests.s3_server import s3_server_binary

VERSION = "v1.29.1"
MODULE = "go.temporal.io/server"
SCHEMA = Path("schema/postgresql/v12")
POSTGRES = Path("/usr/lib/postgresql")


@dataclass(frozen=True)
class Programs:
    temporal: Path
    """Folder of Temporal's server, with the schemas of its databases."""
    postgres: Path
    """Folder of PostgreSQL's programs."""

    @property
    def temporal_server(self) -> Path:
        return self.temporal / "server"

    def schema(self, database: str) -> tuple[Path, str]:
        """The file that makes the tables of `temporal` or `visibility`, and their version."""
        folder = self.temporal / "schema" / database
        versions = [path.name.removeprefix("v") for path in (folder / "versioned").iterdir()]
        return folder / "schema.sql", max(versions, key=lambda name: [*map(int, name.split("."))])


def lacking() -> str | None:
    """Why no cluster can be made here; None if one can. Programs that Go builds may still have to be built."""
    if os.getuid() != 0:
        return "it takes root"
    if missing := [name for name in ("ip", "setpriv", "go", "faketime") if program_on_path(name) is None]:
        return f"there is no {', '.join(missing)}"
    return None if _postgres() else "there is no PostgreSQL"


async def obtain_temporal() -> Programs:
    """Those of this machine; Go builds what it lacks, which takes minutes once per user."""
    postgres, go = _postgres(), program_on_path("go")
    assert postgres is not None and go is not None, lacking()
    return Programs(await _temporal(cache_folder() / "bin" / f"temporal-server-{VERSION}", go), postgres)


async def obtain_s3() -> Path:
    """The S3 server, built likewise."""
    on_path, go = program_on_path("versitygw"), program_on_path("go")
    found = await s3_server_binary(cache_folder() / "bin", on_path=on_path, go=go)
    assert found is not None, lacking()
    return found


def _postgres() -> Path | None:
    found = sorted(POSTGRES.glob("*/bin/postgres"), key=lambda path: int(path.parts[-3]))
    return found[-1].parent if found else None


async def _temporal(cached: Path, go: Path) -> Path:
    await go_program("server", f"{MODULE}/cmd/server@{VERSION}", cached, on_path=None, go=go)
    with (cached / "schema.lock").open("w") as lock, tempfile.TemporaryDirectory(dir=cached) as folder:
        await asyncio.to_thread(fcntl.flock, lock, fcntl.LOCK_EX)
        if not await asyncio.to_thread((cached / "schema").exists):
            module = json.loads(await run(str(go), "mod", "download", "-json", f"{MODULE}@{VERSION}"))
            schemas, new = Path(module["Dir"]) / SCHEMA, Path(folder) / "schema"
            await asyncio.to_thread(shutil.copytree, schemas, new, copy_function=shutil.copyfile)
            # The module's folders can't be written to, and neither could their copies be deleted.
            await run("chmod", "-R", "u+w,a+rX", str(new))
            new.rename(cached / "schema")
    return cached


async def run(*command: str) -> str:
    """The output of a command that must succeed."""
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*command, stdout=pipe, stderr=pipe)
    try:
        output, said = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
    if process.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}: {said.decode().strip()}")
    return output.decode()
