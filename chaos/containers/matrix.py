"""Its table of the fault matrix."""

from functools import partial

from chaos.containers.engine import lacking
from chaos.containers.faults import FAULTS
from chaos.lanes import play_all
from chaos.phases import PHASES
from chaos.results import CellResult
from chaos.table import Table

LEGEND = """\
Cells as those above, with `--sandbox docker` and an engine of each cell's own: podman, without any image or
container of another's. Every command also writes outside of the workspace, so that a verifier's container is made
of a commit of the agent's. What is killed of a container is the agent's, and in the reward the verifier's as well.

Beside what a cell promises above:

- **orphans 0**: after the clean-up by a worker the engine has no container, no image of a commit, no process of a
  container or of what watches it, and no mount; also none that it has forgotten itself.
"""

TABLE = Table(
    name="containers",
    heading="## Sandboxes in containers",
    cells="cells in containers",
    faults=FAULTS,
    phases=PHASES,
    kind=CellResult,
    play_all=partial(play_all, FAULTS, contained=True),
    lacking=lacking,
    legend=LEGEND,
)
