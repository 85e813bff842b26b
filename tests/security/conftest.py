"""The suite's attacks, and the table of them in docs/security.md.

A test that attacks says so:

    @pytest.mark.attack("verification", "a link into the hidden files, read by the verifier")
    async def test_a_link_into_the_hidden_files_is_not_followed(...) -> None: ...

The first argument is a threat, one of THREATS; the second is the attempt in a few words, as a reader of the page
should see it. Several tests, or parameters of one, may make the same attempt: they are one row. A test of what must
go on working is not an attack and needs no mark.

`make security-table` runs all attacks, slow ones and those beside other modules included, and writes the table with
each attempt's result between the page's two markers.
"""

from pathlib import Path

import pytest

from tests.sandbox.conftest import fresh, isolated, lease, local
from tests.security.attacks import THREATS, Attacks

__all__ = ["fresh", "isolated", "lease", "local"]
"""Sandboxes to attack."""

OPTION = "--write-attacks"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(OPTION, type=Path, metavar="PAGE", help="write the table of attacks into this page")


def pytest_configure(config: pytest.Config) -> None:
    page = config.getoption(OPTION, None)
    if page is not None and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Attacks(page))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        for mark in item.iter_markers("attack"):
            threat, attempt = mark.args
            if threat not in THREATS:
                raise pytest.UsageError(f"{item.nodeid}: {threat!r} is none of {', '.join(THREATS)}")
            # Reports carry them, also from the processes of xdist.
            item.user_properties.append(("attack", [threat, attempt]))
