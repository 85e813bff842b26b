"""The first table of the fault matrix: rollouts, and all that a run consists of."""

from functools import partial

from chaos.faults import FAULTS
from chaos.lanes import play_all
from chaos.phases import EVERY_PHASE
from chaos.plays import Name
from chaos.results import CellResult
from chaos.ssh_host import can_be_started
from chaos.stage import HEARTBEAT, Size
from chaos.table import Table

SIZE = Size()
ROLLOUTS = SIZE.groups * SIZE.group_size
LEGEND = f"""\
Each cell is a run of its own: {ROLLOUTS} rollouts of the embedded model on file tasks, in a namespace, a store and
sandboxes of its own. One rollout is held exactly at the phase, by a failpoint of the worker, by the provider or by
a command that waits, while the fault is done for real. Then the run goes on to its end. `make chaos` writes this
page.

A cell is ✓ with the seconds from the end of the fault (for a killed worker, started again at once: from the kill)
to the rollout's next journal entry (0 s if it was finished by then), if all of these hold. Else it says which one
doesn't:

- **lost 0**: every rollout has a reward and none was replaced; every command left its mark in the workspace that
  was judged.
- **repaid 0**: the provider answered no call twice, as counted by a proxy in front of it.
- **re-run 0**: no command left its mark twice.
- **rewards changed 0**: each reward is that of an undisturbed run with the same seeds.
- **orphans 0**: after the clean-up by a worker no sandbox, and no process of one, is left.
- **recovery**: for workers within the heartbeat timeout ({HEARTBEAT:g} s here) + 5 s, for Temporal + 10 s. Tasks of
  workflows wait 2 s for a process that has died (`worker.cached_seconds`, by default 20).

Every play of this version counts: a cell that missed a target once stays ✗, however often it is played again.
A cell is played once by default: a ✓ says that it held then, not how often it holds. A – stands for one that the
fault doesn't strike at, or that the machine lacks a program for.

¹ A call, of this rollout or another, was answered into a process that was killed before it could write the
answer to the journal. That can't be 0: the provider has charged, and the answer is lost. The next attempt asks
again, with the same seed.

² A workflow was ended on purpose, its parent failed for it, and the run was started again by name (so often).

³ So many sandboxes were left for a worker to clean up, and were gone then: a terminated workflow releases none.

⁴ A call was in flight when its rollout was ended on purpose. A cancel closes the connection, so that no more is
paid for work that isn't wanted. A provider that answers all the same isn't heard. The call is made again only
if the run is started again.

⁶ The step took longer than 2 s, and had gone on as a regular activity by then.

⁷ The worker was frozen for longer than a process may be silent before it is taken for gone. Another asked for the
turns that it was in, one a rollout at most, and so many answers were paid for twice.
"""


def there_is(name: Name) -> bool:
    fault, phase = FAULTS[name[0]], name[1]
    return phase in fault.phases and (can_be_started() or not fault.through_ssh)


TABLE = Table(
    name="rollouts",
    heading="# Fault matrix",
    cells="cells",
    faults=FAULTS,
    phases=EVERY_PHASE,
    kind=CellResult,
    play_all=partial(play_all, FAULTS),
    there_is=there_is,
    legend=LEGEND,
)
