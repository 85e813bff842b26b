"""The matrix of harnesses as a part of the document, from what cells measured."""

from collections.abc import Mapping, Sequence

from benchmarks.machine import machine
from chaos import matrix
from chaos.harness import restarts
from chaos.harness.faults import FAULTS, PHASES
from chaos.harness.restarts import RestartResult
from chaos.results import CellResult
from chaos.table import Name, table

HEADING = "## Agents with a loop of their own"
LEGEND = """\
Cells as those above, of 2 rollouts of a small harness that streams chat completions in its sandbox. The model's
script has it leave four marks, a command each, and put them together. One rollout's second call is struck: when it
has come to the gateway and isn't journalled yet; while the model server works at it; when half of the model
server's answer has come, and the harness has the beginning of its stream; when it is answered; when the answer is
journalled, and the harness doesn't have it; and in the command that it led to, which takes 4 s.

Beside what a cell promises above:

- **repaid 0**: no call was made again under another name either; the rollouts have as many turns as undisturbed.
- **lost 0** and **re-run 0** are of the sandbox that was judged. In a lost one, the same commands had run: a
  harness that is started anew runs them again.
- **orphans 0**: a harness, the relay at its port and what they started are processes of a sandbox.

A – stands for an engine that the machine doesn't have.
"""
RESTARTS = """\
### Real harnesses started anew

The sandbox of each was destroyed while its last call was in flight. Its next start made its calls again. A call is
counted as repaid where the model answered the same one twice. What follows a call that differs is asked for anew,
on a branch of its own. A – stands for a harness that isn't installed: `make harnesses` and
[the guide](how-to/harnesses.md) tell how.
"""


def document(
    results: Mapping[Name, Sequence[CellResult]],
    started_anew: Mapping[Name, Sequence[RestartResult]],
    version: str,
) -> str:
    lines = [
        HEADING,
        "",
        f"Measured on {machine()}: {len(results)} cells, all with the same version of the code ({version}).",
        "",
        *table(FAULTS, PHASES, results),
    ]
    parts = ["\n".join(lines), totals(results), LEGEND, RESTARTS, "\n".join(restarts.table(started_anew))]
    return "\n\n".join(part.strip() for part in parts)


def totals(results: Mapping[Name, Sequence[CellResult]]) -> str:
    return matrix.totals(results, "cells of harnesses")
