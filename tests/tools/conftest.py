"""The conformance suite of tools: each test marked by a fixture `name` is run for each row."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from clotho.sandbox.backend import SandboxSpec
from clotho.sandbox.local.backend import LocalBackend
from clotho.tools.browser.launch import lacking
from tests.conformance_table import PROPERTY, Conformance
from tests.support import SHARED_LEASE
from tests.tools.browse import Browse
from tests.tools.calls import ToolCalls
from tests.tools.conformance_table import table
from tests.tools.ledgers import SERVERS
from tests.tools.row import Row
from tests.tools.rows import ROWS
from tests.tools.site import Site, served

OPTION = "--write-tools"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(OPTION, type=Path, metavar="PAGE", help="write what the tools passed into this page")


def pytest_configure(config: pytest.Config) -> None:
    page = config.getoption(OPTION, None)
    if page is not None and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Conformance(page, table))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "name" in metafunc.fixturenames:
        metafunc.parametrize("name", ROWS, scope="session")


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
def row(name: str) -> Row:
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


@pytest.fixture
def browse(calls: ToolCalls, site: Site) -> Browse:
    return Browse(calls, site)
