"""Every test in this folder is slow by nature: it fuzzes for as long as it is told to."""

from pathlib import Path

import pytest

from tests.fuzz.runner import Fuzzer

FOLDER = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.parent == FOLDER and "fuzzer" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.slow)


@pytest.fixture
def fuzzer(request: pytest.FixtureRequest) -> Fuzzer:
    """The time and the first case that the command line asks for."""
    return Fuzzer(request.config.getoption("--fuzz-seconds"), request.config.getoption("--fuzz-first"))
