"""What became of each attack in a run of the suite, as a table for a page."""

from collections import Counter
from pathlib import Path

import pytest

THREATS = {
    "verification": "A policy against its own verification",
    "sandbox": "A policy against its sandbox, the supervisor and the worker",
    "neighbours": "A policy or a local user against neighbours on the host",
    "model-server": "A hostile or broken model server",
    "platforms": "A broken engine or platform of sandboxes",
    "listeners": "Requests to the servers that Clotho runs",
    "records": "Hostile content in what is stored, shown and exported",
}
BEGINNING = "<!-- attacks -->"
END = "<!-- end of attacks -->"


class Attacks:
    """A plugin that collects the results of attacks and writes them into `page` when the run ends."""

    def __init__(self, page: Path) -> None:
        self._page = page
        self._results: dict[tuple[str, str], Counter[str]] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when != "call" and report.passed:
            return
        for name, value in report.user_properties:
            if name == "attack" and isinstance(value, list):
                threat, attempt = value
                self._results.setdefault((threat, attempt), Counter())[report.outcome] += 1

    def pytest_sessionfinish(self, exitstatus: int) -> None:
        if exitstatus not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
            return
        before, beginning, rest = self._page.read_text().partition(BEGINNING)
        _, end, after = rest.partition(END)
        if not (beginning and end):
            raise pytest.UsageError(f"{self._page} lacks the markers {BEGINNING} and {END}")
        self._page.write_text(before + beginning + self._table() + end + after)

    def _table(self) -> str:
        sections = []
        for threat, title in THREATS.items():
            rows = [(attempt, found) for (of, attempt), found in self._results.items() if of == threat]
            if rows:
                lines = [f"| {attempt} | {_result(found)} |" for attempt, found in sorted(rows)]
                sections.append("\n".join([f"### {title}", "", "| attempt | result |", "|---|---|", *lines]))
        return "\n" + "\n\n".join(sections) + "\n"


def _result(found: Counter[str]) -> str:
    """What all tests that make one attempt say of it together."""
    if found["failed"]:
        return "**gets through**"
    if not found["passed"]:
        return "not tried on this machine"
    return "held" if found["passed"] == 1 else f"held, in {found['passed']} forms"
