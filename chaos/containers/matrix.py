"""The matrix of containers as a part of the document, from what cells measured."""

from collections.abc import Mapping, Sequence

from benchmarks.machine import machine
from chaos import matrix
from chaos.containers.faults import FAULTS
from chaos.phases import PHASES
from chaos.results import CellResult
from chaos.table import Name, table

HEADING = "## Sandboxes in containers"
LEGEND = """\
Cells as those above, with `--sandbox docker` and an engine of each cell's own: podman, without any image or
container of another's. Every command also writes outside of the workspace, so that a verifier's container is made
of a commit of the agent's. What is killed of a container is the agent's, and in the reward the verifier's as well.

Beside what a cell promises above:

- **orphans 0**: after the clean-up by a worker the engine has no container, no image of a commit, no process of a
  container or of what watches it, and no mount; also none that it has forgotten itself.
"""


def document(results: Mapping[Name, Sequence[CellResult]], version: str) -> str:
    lines = [
        HEADING,
        "",
        f"Measured on {machine()}: {len(results)} cells, all with the same version of the code ({version}).",
        "",
        *table(FAULTS, PHASES, results),
    ]
    return "\n".join([*lines, "", totals(results), "", LEGEND])


def totals(results: Mapping[Name, Sequence[CellResult]]) -> str:
    return matrix.totals(results, "cells in containers")
