"""Session-wide servers: one Temporal server, one embedded model; workers and namespaces as tests need them."""

import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Generator, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from clotho.config import variable
from clotho.embedded.model import EmbeddedModelServer
from clotho.embedded.temporal_binary import temporal_binary
from clotho.embedded.temporal_server import TemporalServer
from tests.cluster import Cluster, cluster_in
from tests.support import PATIENCE_SECONDS

LOG_SHOWN = 6_000
LONG_SECONDS = 60.0
FIRST = ("sandbox", "tools", "chaos", "workflows", "harness", "cli", "deploy", "examples", "atropos", "docs")
"""Folders whose files take minutes: begun last, one would be waited for alone. The first need no Temporal server:
where there is none yet, it is built meanwhile."""
LAST = "unit"
"""The folder of the shortest files."""
PROGRAMS = pytest.StashKey[subprocess.Popen[bytes]]()

# A busy machine is no finding.
settings.register_profile("unhurried", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("unhurried")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--fuzz-seconds", type=float, default=3.0, help="time for each target in tests/fuzz")
    parser.addoption("--fuzz-first", type=int, default=0, help="number of the first case of each target")


def pytest_sessionstart(session: pytest.Session) -> None:
    """In the process that starts those of xdist: have servers built while they run tests that need none."""
    if session.config.getoption("numprocesses", None):
        slow = [] if "not slow" in session.config.getoption("markexpr") else ["--slow"]
        command = [sys.executable, "-m", "tests.programs", *slow]
        session.config.stash[PROGRAMS] = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )


def pytest_sessionfinish(session: pytest.Session) -> None:
    if (programs := session.config.stash.get(PROGRAMS, None)) is not None:
        programs.terminate()
        programs.wait()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    tests = Path(__file__).parent

    def place(item: pytest.Item) -> int:
        folder = item.path.relative_to(tests).parts[0] if item.path.is_relative_to(tests) else ""
        return FIRST.index(folder) if folder in FIRST else len(FIRST) + (folder == LAST)

    items.sort(key=place)


@pytest.hookimpl(trylast=True)
def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Name tests of over a minute as they end: a run that is cut off shows where its time went."""
    if report.duration > LONG_SECONDS and variable("PYTEST_XDIST_WORKER") is None:
        sys.stdout.write(f"\n{report.duration:.0f} s: {report.nodeid} ({report.when})\n")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A failed test shows the ends of its workers' logs."""
    report = yield
    if report.failed:
        clusters = [value for value in getattr(item, "funcargs", {}).values() if isinstance(value, Cluster)]
        for log in (path for cluster in clusters for path in sorted(cluster.folder.glob("worker-*.log"))):
            report.sections.append((log.name, log.read_text(errors="replace")[-LOG_SHOWN:]))
    return report


@pytest.fixture(scope="session")
def folder() -> Iterator[Path]:
    """A folder that the users of sandboxes may pass through, unlike pytest's own."""
    with tempfile.TemporaryDirectory(prefix="clotho-test-") as name:
        path = Path(name)
        path.chmod(0o711)
        yield path


@pytest.fixture(scope="session")
async def temporal(folder: Path) -> AsyncIterator[TemporalServer]:
    server = TemporalServer(await temporal_binary(), folder / "temporal.log", ui_port=None)
    await server.start(PATIENCE_SECONDS)
    yield server
    await server.stop()


@pytest.fixture(scope="session")
async def embedded_model(folder: Path) -> AsyncIterator[EmbeddedModelServer]:
    async with EmbeddedModelServer(folder / "embedded-model.log") as server:
        yield server


@pytest.fixture(scope="session")
async def cluster(temporal: TemporalServer, folder: Path) -> AsyncIterator[Cluster]:
    """Workers in the default namespace that nobody kills."""
    async with cluster_in(temporal, folder / "shared", "default") as shared:
        await shared.start_worker()
        yield shared


@pytest.fixture
async def private_cluster(
    temporal: TemporalServer, folder: Path, request: pytest.FixtureRequest
) -> AsyncIterator[Cluster]:
    """A namespace and a store of the test's own, without workers yet."""
    name = request.node.name.replace("[", "-").replace("]", "").replace("_", "-")[:60]
    async with cluster_in(temporal, folder / name, name) as private:
        yield private


@pytest.fixture
def wandb_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """What wandb writes offline in this process is here; it heeds no variable once it has started."""
    import wandb

    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_DIR", str(tmp_path))
    monkeypatch.setenv("WANDB_X_SERVICE_WAIT", str(PATIENCE_SECONDS))
    monkeypatch.setenv("WANDB_INIT_TIMEOUT", str(PATIENCE_SECONDS))
    yield tmp_path
    wandb.teardown()
