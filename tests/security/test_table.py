"""The table in docs/security.md comes from results, not from what tests are called."""

from pathlib import Path

import pytest

ATTACKS = """
import pytest

@pytest.mark.attack("sandbox", "a thing that holds")
@pytest.mark.parametrize("form", [1, 2, 3])
def test_one(form): ...

@pytest.mark.attack("listeners", "a thing that doesn't")
def test_two(): assert False

@pytest.mark.attack("listeners", "a thing that can't be prepared")
def test_three(missing): ...

@pytest.mark.attack("records", "a thing for another machine")
def test_four(): pytest.skip("not here")

def test_of_something_else(): ...
"""
PAGE = "Before.\n<!-- attacks -->\nolder\n<!-- end of attacks -->\nAfter.\n"
TABLE = """Before.
<!-- attacks -->
### A policy against its sandbox, the supervisor and the worker

| attempt | result |
|---|---|
| a thing that holds | held, in 3 forms |

### Requests to the servers that Clotho runs

| attempt | result |
|---|---|
| a thing that can't be prepared | **gets through** |
| a thing that doesn't | **gets through** |

### Hostile content in what is stored, shown and exported

| attempt | result |
|---|---|
| a thing for another machine | not tried on this machine |
<!-- end of attacks -->
After.
"""

pytest_plugins = ["pytester"]


@pytest.mark.parametrize("processes", [(), ("-n", "2")], ids=["one process", "two processes"])
@pytest.mark.slow
def test_the_page_shows_what_became_of_each_attack(pytester: pytest.Pytester, processes: tuple[str]) -> None:
    page = _prepared(pytester, ATTACKS)
    _run(pytester, "--write-attacks", page, *processes)
    assert page.read_text() == TABLE


@pytest.mark.slow
def test_an_unknown_threat_is_refused(pytester: pytest.Pytester) -> None:
    page = _prepared(pytester, ATTACKS.replace('"sandbox"', '"sandbags"'))
    result = _run(pytester, "--write-attacks", page)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert page.read_text() == PAGE


def _prepared(pytester: pytest.Pytester, tests: str) -> Path:
    pytester.makepyfile(tests)
    pytester.makeconftest(Path(__file__).with_name("conftest.py").read_text())
    page = pytester.path / "page.md"
    page.write_text(PAGE)
    return page


def _run(pytester: pytest.Pytester, *arguments: object) -> pytest.RunResult:
    return pytester.runpytest_subprocess(*map(str, arguments))
