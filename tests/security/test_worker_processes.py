"""Who has the keys of model servers: the processes that call models, and no other."""

import asyncio
import os
import sys
from pathlib import Path

import pytest

from tests.cli.command import command_line, descendants, run
from tests.cluster import Cluster
from tests.support import eventually

KEY = "sk-for-the-model-server-alone"


async def test_a_number_of_processes_without_roles_is_refused_with_what_to_do() -> None:
    done = await run(sys.executable, "worker.py", "--processes", "4")
    assert done.status == 2
    assert "--processes 4 needs --roles" in done.complaint
    assert "`--roles workflows --processes 4`" in done.complaint


@pytest.mark.attack("sandbox", "the model server's key, from the environment of a process that runs tools")
async def test_only_processes_that_call_models_have_their_keys(cluster: Cluster, tmp_path: Path) -> None:
    parent = await asyncio.create_subprocess_exec(
        *(sys.executable, "worker.py", "--store", tmp_path / "store", "--temporal", cluster.address),
        env={**os.environ, "OPENAI_API_KEY": KEY, "CLOTHO_SANDBOX__ROOT": str(cluster.folder / "others")},
        stderr=asyncio.subprocess.DEVNULL,
    )

    def process_of(role: bytes) -> int | None:
        found = [pid for pid in descendants(parent.pid) if b"--roles\0" + role in command_line(pid)]
        return found[0] if found else None

    async def both() -> tuple[int, int] | None:
        models, tools = process_of(b"llm"), process_of(b"workflows,tools")
        return (models, tools) if models and tools else None

    try:
        models, tools = await eventually(both, "a process of each kind")
        assert KEY.encode() in Path(f"/proc/{models}/environ").read_bytes()
        assert KEY.encode() not in Path(f"/proc/{tools}/environ").read_bytes()
    finally:
        parent.terminate()
        await parent.wait()
