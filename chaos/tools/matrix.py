"""Its table of the fault matrix."""

from chaos.results import CellResult
from chaos.table import Table
from chaos.tools.faults import FAULTS, PHASES, there_is
from chaos.tools.play import play_all

LEGEND = """\
Cells as those above, of 2 rollouts of a scripted model. Each is to leave three marks in its sandbox, with a tool
call each: through `terminal`, called by `execute_code`; by an MCP server in the sandbox; or with a click on a page
that the sandbox serves to the browser. The first mark's call is struck. Where it is struck in its middle, the mark
is there already, and the call takes 4 s.

Most of these calls may be made once only. Where the answer is lost, the model reads so; the script then looks which
marks are there, and goes on with the first one missing. So **lost 0** and **re-run 0** say that neither Clotho nor
a model that believes what it reads left a mark out, or left it twice, in the sandbox that was judged. A rollout
whose model reads a failure of the host as a tool's result has reward 0: its reward has changed.

A task that is delegated is done by a child: a rollout with a model, and mostly a sandbox, of its own. It begins,
leaves the mark and says how often it did each; a parent leaves a mark beside it. Lost and re-run count for parent
and child, which is looked for by the parent's transcript: one that isn't linked there, or a second one for the same
call, counts as well. **Before the call** is before the child is begun, **in the call** in its command, **after the
call** after the parent's entry; where the worker that asks for its turns is killed, before its first turn, at the
answer to its second, and after the entry of its last. A lost sandbox is the child's and the parent's.

A killed worker takes the host's browser with it: 10 s more are allowed for the next one to start. A – stands for a
process that there isn't at that time, or for a program that the machine lacks.
"""

TABLE = Table(
    name="tools",
    heading="## Tools with a process of their own",
    cells="cells of tools",
    faults=FAULTS,
    phases=PHASES,
    kind=CellResult,
    play_all=play_all,
    there_is=there_is,
    legend=LEGEND,
)
