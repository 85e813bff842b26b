"""Findings of an examination: facts, and remedies for those that need attention."""

from dataclasses import dataclass

from rich.console import Console
from temporalio.client import Client

from clotho.cli.terminal import one_line
from clotho.config import Settings
from clotho.journal import Journal


@dataclass(frozen=True)
class Finding:
    fact: str
    advice: str | None = None
    """The remedy; None: nothing to do."""
    is_full: bool = False
    """Whether it tells of a full disk, which other findings may only follow from."""


@dataclass(frozen=True)
class Examination:
    """Inputs of an examination."""

    settings: Settings
    journal: Journal | None
    """None: the store can't be read."""
    client: Client | None
    """None: Temporal can't be asked, or is on a full disk and would answer wrongly."""


def show(console: Console, title: str, findings: list[Finding]) -> None:
    """A line for each; those that need attention are marked, with the advice under them."""
    console.print(title, style="bold")
    for finding in findings:
        mark, style = ("  ", "") if finding.advice is None else ("! ", "yellow")
        one_line(console, f"{mark}{finding.fact}", style)
        if finding.advice is not None:
            one_line(console, f"    → {finding.advice}")
