"""The table of docs/tools.md has every tool, as the conformance suite describes it, and its last run of all."""

from pathlib import Path

from tests.conformance_table import BEGINNING, END
from tests.tools.conformance_table import table

PAGE = Path(__file__).parents[2] / "docs" / "tools.md"


def test_the_table_has_the_suites_rows_and_each_passed() -> None:
    written = PAGE.read_text().partition(BEGINNING)[2].partition(END)[0].strip().splitlines()
    generated = table({}).splitlines()
    assert [_described(line) for line in written] == [_described(line) for line in generated]
    for line in written[2:]:
        passed, _, run = _last_cell(line).partition(" of ")
        assert passed == run, f"`make tools-table` writes what was passed: {line}"


def _described(line: str) -> str:
    return line.rpartition("|")[0].rpartition("|")[0]


def _last_cell(line: str) -> str:
    return line.split("|")[-2].strip()
