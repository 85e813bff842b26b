"""Its table of the fault matrix."""

from chaos.harness.faults import FAULTS, PHASES, there_is
from chaos.harness.play import play_all
from chaos.results import CellResult
from chaos.table import Table

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

TABLE = Table(
    name="harnesses",
    heading="## Agents with a loop of their own",
    cells="cells of harnesses",
    faults=FAULTS,
    phases=PHASES,
    kind=CellResult,
    play_all=play_all,
    there_is=there_is,
    legend=LEGEND,
)
