"""What was passed of a conformance suite in a run of it, as a table for a page."""

from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

BEGINNING = "<!-- conformance -->"
END = "<!-- end of conformance -->"
PROPERTY = "conformance"

Results = Mapping[tuple[str, str], "Counter[str]"]
"""How often each outcome was met, by area and by what was tested."""


class Conformance:
    """A plugin that collects results and writes them into `page` when the run ends."""

    def __init__(self, page: Path, table: Callable[[Results], str]) -> None:
        self._page = page
        self._table = table
        self._results: dict[tuple[str, str], Counter[str]] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when != "call" and report.passed:
            return
        for name, value in report.user_properties:
            if name == PROPERTY and isinstance(value, list):
                area, kind = value
                self._results.setdefault((area, kind), Counter())[report.outcome] += 1

    def pytest_sessionfinish(self) -> None:
        before, beginning, rest = self._page.read_text().partition(BEGINNING)
        _, end, after = rest.partition(END)
        if not (beginning and end):
            raise pytest.UsageError(f"{self._page} lacks the markers {BEGINNING} and {END}")
        table = self._table(self._results)
        self._page.write_text(f"{before}{beginning}\n\n{table}\n\n{end}{after}")


def passed_of(found: "Counter[str] | None") -> str:
    """The cell of one result: `9 of 9`."""
    if found is None or not found["passed"] + found["failed"]:
        return "not run here"
    return f"{found['passed']} of {found['passed'] + found['failed']}"
