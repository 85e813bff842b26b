"""`clotho init`, and the first steps with what it has written."""

import sys
from pathlib import Path

import pytest

from clotho.embedded.model import EmbeddedModelServer
from clotho.embedded.temporal_server import TemporalServer
from tests.cli.command import clotho, run
from tests.cluster import cluster_in


@pytest.fixture(scope="module")
async def begun(folder: Path) -> Path:
    """A folder as `clotho init` leaves it."""
    folder = folder / "begun"
    done = await clotho("init", "begun", folder=folder.parent)
    assert (done.status, done.error) == (0, "")
    assert "clotho try my_tasks:Greetings" in done.output
    folder.chmod(0o711)
    return folder


async def test_nothing_is_overwritten(begun: Path) -> None:
    files = {"my_tasks.py", "test_my_tasks.py", "clotho.yaml"}
    assert {path.name for path in begun.iterdir() if path.is_file()} == files
    before = (begun / "my_tasks.py").read_text()
    (begun / "clotho.yaml").rename(begun / "kept.yaml")
    again = await clotho("init", folder=begun)
    (begun / "kept.yaml").rename(begun / "clotho.yaml")
    assert again.status == 1
    assert again.complaint == "clotho: my_tasks.py, test_my_tasks.py: there already; give another folder"
    assert (begun / "my_tasks.py").read_text() == before
    nowhere = await clotho("init", "/proc/nowhere", folder=begun)
    assert "/proc/nowhere can't be written" in nowhere.complaint


@pytest.mark.slow
async def test_the_tests_that_it_writes_pass(begun: Path) -> None:
    command = (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider")
    done = await run(*command, folder=begun, environment={"CLOTHO_SANDBOX__ROOT": str(begun / "sandboxes")})
    assert done.status == 0, done.output
    assert "4 passed" in done.output


@pytest.mark.slow
async def test_try_and_run_work_on_what_it_writes(
    begun: Path, temporal: TemporalServer, embedded_model: EmbeddedModelServer
) -> None:
    variables = {"CLOTHO_SANDBOX__ROOT": str(begun / "sandboxes")}
    model = ("--model", f"{embedded_model.url}/v1", "--temperature", "0.1")
    tried = await clotho("try", "my_tasks:Greetings", *model, folder=begun, environment=variables)
    assert (tried.status, tried.error) == (0, "")
    assert "── reward 1 " in tried.output
    solved = await clotho(
        "try", "my_tasks:Greetings", "--agent", "oracle", folder=begun, environment=variables
    )
    assert "── reward 1 " in solved.output
    async with cluster_in(temporal, begun / "cluster", "begun") as cluster:
        await cluster.start_worker(under=("env", "-C", str(begun)))
        where = ("--store", str(cluster.store), "--temporal", temporal.address)
        order = ("run", "my_tasks:Greetings", "--run", "first", *model, "--group-size", "2", *where)
        namespace = {"CLOTHO_TEMPORAL__NAMESPACE": "begun"}
        done = await clotho(*order, folder=begun, environment=namespace)
    assert (done.status, done.error) == (0, "")
    assert "│ g000003 │ 1 1 " in done.output
