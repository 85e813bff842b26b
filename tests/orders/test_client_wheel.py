"""The client's own wheel, in an environment without Clotho, against a real server."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from clotho.embedded.model import EmbeddedModelServer
from clotho.listeners.tokens import token_of_port
from tests.cli.command import run
from tests.cluster import Cluster
from tests.orders.service import file_item, serving_rollouts

ROOT = Path(__file__).parent.parent.parent
TRAINER = '''"""Trains on one group: prints what it got."""

import asyncio, importlib.util, json, sys

from clotho_client.client import AsyncRolloutClient, RolloutClient
from clotho_client.errors import RequestRefused
from clotho_client.orders import Endpoint, GroupOrder, Inference, Rendering, RunOrder

url, token, model, server, items = sys.argv[1:]
first, second = json.loads(items)
order = RunOrder(
    environment="file_tasks",
    model=model,
    endpoint=Endpoint(base_url=f"{server}/v1", inference=Inference.TOKENS),
    rendering=Rendering(tool_call_parser="hermes"),
    group_size=2,
    settings={"checkpoints": "off"},
)


async def wait_for(name):
    client = AsyncRolloutClient(url, token)
    await client.order("from-a-wheel", name, GroupOrder(item=second))
    answer = await client.wait("from-a-wheel", name)
    await client.close()
    return answer


with RolloutClient(url, token) as client:
    client.open_run("from-a-wheel", order)
    client.order("from-a-wheel", "first", GroupOrder(item=first, step=1))
    answers = [client.wait("from-a-wheel", "first"), asyncio.run(wait_for("second"))]
    acknowledged = client.acknowledge("from-a-wheel", "first").acknowledged
    left = client.unacknowledged("from-a-wheel")
    try:
        client.open_run("from-a-wheel", order.model_copy(update={"settings": {"no_such": 1}}))
        refusal = ""
    except RequestRefused as error:
        refusal = str(error)

print(json.dumps({
    "has_clotho": importlib.util.find_spec("clotho") is not None,
    "rows": [row.model_dump(mode="json") for answer in answers for row in answer.rows],
    "acknowledged": acknowledged,
    "left": left,
    "refusal": refusal,
}))
'''


@pytest.fixture(scope="module")
def interpreter(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fresh virtual environment's Python, with the wheel of `client/` and what that depends on."""
    folder = tmp_path_factory.mktemp("client")
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "wheel", "--no-deps", "--wheel-dir", str(folder), str(ROOT / "client")], check=True)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder / "venv")], check=True)
    python = folder / "venv/bin/python"
    wheels = map(str, folder.glob("clotho_client-*.whl"))
    subprocess.run([*pip, "--python", str(python), "install", *wheels], check=True)
    return python


@pytest.mark.slow
async def test_a_trainer_without_clotho_gets_its_rows(
    cluster: Cluster, embedded_model: EmbeddedModelServer, interpreter: Path, tmp_path: Path
) -> None:
    (tmp_path / "trainer.py").write_text(TRAINER)
    async with serving_rollouts(cluster) as service:
        token = token_of_port(int(service.url.rpartition(":")[2])).text
        items = json.dumps([file_item(1), file_item(2)])
        done = await run(
            interpreter, "trainer.py", service.url, token, embedded_model.model, embedded_model.url, items,
            folder=tmp_path,
        )  # fmt: skip
    assert done.status == 0, done.error
    said = json.loads(done.output)
    assert not said["has_clotho"]
    groups = {row["group"] for row in said["rows"]}
    assert groups == {"from-a-wheel/i-first.0", "from-a-wheel/i-second.0"} and len(said["rows"]) >= 4
    for row in said["rows"]:
        assert len(row["ids"]) == len(row["mask"]) == len(row["logprobs"]) > sum(row["mask"]) > 0
    assert (said["acknowledged"], said["left"]) == (True, ["second"])
    assert "422" in said["refusal"] and "settings.no_such" in said["refusal"]
