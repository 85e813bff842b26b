"""The conformance suite of tools: each test marked by a fixture `name` is run for each row."""

import asyncio
import os
import shutil
import sys
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import pytest

from clotho.config import cache_folder
from clotho.plugins.browser import calls as browser_calls
from clotho.plugins.browser.client import SCOPE_CHARS, SOCKET
from clotho.plugins.browser.launch import chromium, lacking
from clotho.processes.child import ChildProcess
from clotho.sandbox.backend import SandboxSpec
from clotho.sandbox.local.backend import LocalBackend
from clotho.tools.dispatch import OWN_SCOPE
from tests.conformance_table import PROPERTY, Conformance
from tests.support import PATIENCE_SECONDS, SHARED_LEASE, eventually
from tests.tools.browse import Browse, end
from tests.tools.calls import ToolCalls
from tests.tools.conformance_table import table
from tests.tools.ledgers import SERVERS
from tests.tools.row import Row
from tests.tools.rows import ROWS
from tests.tools.site import Site, served

OPTION = "--write-tools"
OTHER_BROWSER_TOOLS = frozenset(name for name in ROWS if name.startswith("browser_")) - {"browser_click"}
"""They go the way of this one, in browsers that take seconds to start: in tests that make calls they are held to it
where OPTION is given."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(OPTION, type=Path, metavar="PAGE", help="write what the tools passed into this page")


def pytest_configure(config: pytest.Config) -> None:
    page = config.getoption(OPTION, None)
    if page is not None and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Conformance(page, table))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "name" in metafunc.fixturenames:
        whole = metafunc.config.getoption(OPTION, None) is not None
        whole = whole or "calls" not in metafunc.fixturenames
        names = [name for name in ROWS if whole or name not in OTHER_BROWSER_TOOLS]
        metafunc.parametrize("name", names, scope="session")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The hook is given the items of all folders."""
    here = [each for each in items if each.path.parent == Path(__file__).parent]
    for item in here:
        if isinstance(item, pytest.Function) and hasattr(item, "callspec") and "name" in item.callspec.params:
            name = str(item.callspec.params["name"])
            item.user_properties.append((PROPERTY, [item.originalname, name]))
            if ROWS[name].slow:
                item.add_marker(pytest.mark.slow)
            if name.startswith("browser_") and (need := lacking()) is not None:
                item.add_marker(pytest.mark.skip(reason=need))


@pytest.fixture
def row(name: str, request: pytest.FixtureRequest) -> Row:
    if name.startswith("browser_"):
        request.getfixturevalue("patient_browser")
    return ROWS[name]


@pytest.fixture(scope="session")
def tool_backend(folder: Path) -> LocalBackend:
    return LocalBackend(folder / "tool-conformance")


@pytest.fixture(scope="session")
async def shared_calls(tool_backend: LocalBackend) -> AsyncIterator[ToolCalls]:
    yield ToolCalls(
        await tool_backend.create("shared/lease/0", SandboxSpec.model_validate(SHARED_LEASE)), "shared"
    )
    await SERVERS.close()
    await tool_backend.destroy("shared/lease/0")


@pytest.fixture
async def calls(shared_calls: ToolCalls) -> ToolCalls:
    """The shared sandbox, with nothing in it."""
    await shared_calls.start_over()
    return shared_calls


@pytest.fixture(scope="session")
async def site() -> AsyncIterator[Site]:
    async with served() as site:
        yield site


@pytest.fixture(scope="module")
async def patient_browser(folder: Path) -> AsyncIterator[None]:
    """The browser that calls of this process find: what a page does in it may take long, and takes processors."""
    program, place = chromium(), cache_folder() / "browsers" / OWN_SCOPE[:SCOPE_CHARS]
    assert program is not None
    shutil.rmtree(place, ignore_errors=True)
    (place / "tmp").mkdir(parents=True)
    variables = (f"HOME={place}", f"TMPDIR={place / 'tmp'}")
    command = ("env", *variables, sys.executable, "-m", "tests.tools.patient_browser", place, program)
    server = ChildProcess([*map(str, command)], folder / "browser.log")
    await server.start()

    async def listening() -> bool:
        assert server.running, server.output
        with suppress(FileNotFoundError, ConnectionError):
            _, writer = await asyncio.open_unix_connection(place / SOCKET)
            writer.close()
            return True
        return False

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(browser_calls, "SITE_SECONDS", PATIENCE_SECONDS)
        await eventually(listening, "the browser's process")
        yield
    await server.kill()
    await end(place)
    shutil.rmtree(place, ignore_errors=True)  # the driver may be at it too


@pytest.fixture
def browse(calls: ToolCalls, site: Site, patient_browser: None) -> Browse:
    return Browse(calls, site)


@pytest.fixture
async def own_browser(browse: Browse, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Path]:
    """The folder of a browser of the test's own, which a call starts as a worker's does."""
    scope = f"ends-{os.getpid()}"
    monkeypatch.setattr(browse.calls.dispatcher, "scope", scope)
    folder = cache_folder() / "browsers" / scope
    yield folder
    await end(folder)
    shutil.rmtree(folder, ignore_errors=True)  # the driver may be at it too
    (folder.parent / f"{scope}.lock").unlink()
