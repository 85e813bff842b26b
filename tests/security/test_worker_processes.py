"""Keys of model servers: they reach worker processes, and are in no environment that other processes see."""

from pathlib import Path

import pytest
from starlette.applications import Starlette
from starlette.responses import Response
from starlette.routing import Mount
from starlette.types import Receive, Scope, Send

from clotho.testing.script import Script
from clotho.testing.scripted_model import ScriptedModel, serving
from tests.cluster import Cluster
from tests.support import start
from tests.workflows.scripts import scoring

KEY = "sk-a-key-that-nobody-else-sees"


class Locked(ScriptedModel):
    """Answers those who have the key."""

    def __init__(self, script: Script) -> None:
        super().__init__(script)
        self._answers = self.app
        self.app = Starlette(routes=[Mount("/", self._checked)])

    async def _checked(self, scope: Scope, receive: Receive, send: Send) -> None:
        named = dict(scope["headers"]).get(b"authorization") == f"Bearer {KEY}".encode()
        await (self._answers if named else Response(status_code=401))(scope, receive, send)


def below(parent: int) -> set[int]:
    """A process, and all that it and its children have started."""
    found = {parent}
    for task in Path(f"/proc/{parent}/task").iterdir():
        for child in (task / "children").read_text().split():
            found |= below(int(child))
    return found


@pytest.mark.attack("sandbox", "the model server's key, from the environment of a process that runs tools")
@pytest.mark.parametrize("processes", [1, 2])
async def test_a_key_is_in_no_environment_of_a_worker(private_cluster: Cluster, processes: int) -> None:
    cluster = private_cluster
    worker = await cluster.start_worker(processes=str(processes), OPENAI_API_KEY=KEY)
    async with serving(Locked(Script(conversations=(scoring(1.0),)))) as url:
        handle = await start(cluster, "locked", url, api_key_variable="OPENAI_API_KEY")
        progress = await handle.result()
    assert progress.rollouts == 1
    assert worker.pid is not None
    seen = {pid: Path(f"/proc/{pid}/environ").read_bytes() for pid in below(worker.pid)}
    assert len(seen) > processes, "their authors' processes, too"
    assert [pid for pid, environment in seen.items() if KEY.encode() in environment] == []


async def test_processes_that_call_no_model_get_no_key(private_cluster: Cluster) -> None:
    worker = await private_cluster.start_worker("workflows,tools", OPENAI_API_KEY=KEY)
    await private_cluster.start_worker("llm", OPENAI_API_KEY=KEY)
    async with serving(Locked(Script(conversations=(scoring(1.0),)))) as url:
        await (await start(private_cluster, "apart", url, api_key_variable="OPENAI_API_KEY")).result()
    assert KEY.encode() not in Path(f"/proc/{worker.pid}/environ").read_bytes()
