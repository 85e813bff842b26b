"""What each backend passed of the conformance suite in a run of it, as a table for a page."""

from collections import Counter
from pathlib import Path

import pytest

AREAS = {
    "jobs": "commands run at most once, end with their trees, and have bounds",
    "state": "working directory and variables from one command to the next",
    "sessions": "background jobs, terminals and their input",
    "files": "reading and writing files",
    "leases": "creation, attaching, renewal, expiry, reaping, owners",
    "checkpoints": "checkpoints and restores",
    "freeze": "commands stand still for a checkpoint",
    "manifest": "listings of the workspace",
    "places": "further writable folders and names",
    "verifier": "verification in an instance of its own",
    "verifier_paths": "a verifier names files as the agent did",
}
BACKENDS = {
    "local": "local",
    "bare": "local, unsafe",
    "podman": "docker, with podman",
    "remote": "local, served over a stream",
    "ssh": "ssh",
}
BEGINNING = "<!-- conformance -->"
END = "<!-- end of conformance -->"
PROPERTY = "conformance"


class Conformance:
    """A plugin that collects results and writes them into `page` when the run ends."""

    def __init__(self, page: Path) -> None:
        self._page = page
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
        self._page.write_text(before + beginning + self._table() + end + after)

    def _table(self) -> str:
        lines = [f"| what | {' | '.join(BACKENDS.values())} |", f"|---|{'---|' * len(BACKENDS)}"]
        for area, meaning in AREAS.items():
            cells = (self._cell(self._results.get((area, kind))) for kind in BACKENDS)
            lines.append(f"| {meaning} | {' | '.join(cells)} |")
        return "\n\n" + "\n".join(lines) + "\n\n"

    def _cell(self, found: "Counter[str] | None") -> str:
        if found is None or not found["passed"] + found["failed"]:
            return "not run here"
        tried = found["passed"] + found["failed"]
        return f"{found['passed']} of {tried}"
