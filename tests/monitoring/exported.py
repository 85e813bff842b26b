"""The samples that a process exports, and the dashboard's queries to compare them with."""

import json
import re
from collections.abc import Iterator
from importlib import resources

import httpx

from clotho.processes.child import ChildProcess
from tests.support import PATIENCE_SECONDS, eventually

NAME = re.compile(r"\b(?:clotho|temporal)_\w+")
SAMPLE = re.compile(r"^(?P<name>\w+)(?:\{(?P<labels>.*)\})? (?P<value>\S+)$", re.MULTILINE)
LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
ADDRESS = re.compile(r"metrics at (http://\S+)")

Sample = tuple[str, dict[str, str], float]


def queries(row: str = "") -> list[str]:
    """The dashboard's queries below the heading `row`; empty: those above the first one, which workers answer."""
    dashboard = json.loads(resources.files("clotho.monitoring").joinpath("dashboard.json").read_text())
    heading, found = "", []
    for panel in dashboard["panels"]:
        if panel["type"] == "row":
            heading = panel["title"]
        elif heading == row:
            found += [target["expr"] for target in panel["targets"]]
    return found


def samples(text: str) -> list[Sample]:
    return [
        (found["name"], dict(LABEL.findall(found["labels"] or "")), float(found["value"]))
        for found in SAMPLE.finditer(text)
    ]


def total(exported: list[Sample], metric: str, **labels: str) -> float:
    return sum(
        value
        for name, own, value in exported
        if name == metric and all(own.get(label) == wanted for label, wanted in labels.items())
    )


def labels_asked(query: str) -> Iterator[tuple[str, set[str]]]:
    """Each metric of a query, with the labels that it is grouped by."""
    grouped = {label.strip() for by in re.findall(r"by \(([^)]*)\)", query) for label in by.split(",")}
    for name in NAME.findall(query):
        yield name, grouped


def check_answered(asked: list[str], exported: list[Sample]) -> set[str]:
    """Check that every metric of the queries is exported, with the labels asked for; returns their names."""
    labels: dict[str, set[str]] = {}
    for name, own, _ in exported:
        labels.setdefault(name, set()).update(own)
    pairs = [pair for query in asked for pair in labels_asked(query)]
    assert [name for name, _ in pairs if name not in labels] == []
    assert [(name, missing) for name, by in pairs if (missing := by - labels[name])] == []
    return {name for name, _ in pairs}


async def exported_by(process: ChildProcess) -> list[Sample]:
    async def address() -> str | None:
        return next(iter(reversed(ADDRESS.findall(process.output))), None)

    async with httpx.AsyncClient(timeout=PATIENCE_SECONDS) as client:
        answer = await client.get(await eventually(address, "the metrics' address in the log"))
    assert answer.status_code == 200
    return samples(answer.text)
