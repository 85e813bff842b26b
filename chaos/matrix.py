"""The fault matrix as a document, from what cells measured."""

from collections.abc import Mapping

from benchmarks.__main__ import machine
from chaos.faults import faults
from chaos.phases import PHASES
from chaos.results import CellResult, Run
from chaos.stage import HEARTBEAT

LEGEND = f"""\
Each cell is a run of its own: rollouts of the embedded model on file tasks, in a namespace, a store and sandboxes
of its own. One rollout is held exactly at the phase, by a fail point of the worker, by the provider or by a command
that takes its time, while the fault is done for real; then the run goes on to its end. `make chaos` writes this.

A cell is ✓ with the seconds from the end of the fault (for a killed worker, started again at once: from the kill)
to the rollout's next journal entry, if all of these hold; else it says which one doesn't:

- **lost 0**: every rollout has a reward, and every command called left its mark in the workspace that was judged.
- **repaid 0**: the provider answered no call again that it had answered, as counted by a proxy before it.
- **re-run 0**: no command left its mark twice.
- **rewards changed 0**: each reward is that of an undisturbed run with the same seeds.
- **orphans 0**: after the janitor's pass no sandbox, and no process of one, is left.
- **recovery**: for workers within the heartbeat timeout ({HEARTBEAT:g} s here) + 5 s, for Temporal + 10 s.

¹ The call had been answered into a process that was killed before it could write the answer to the journal. That
can't be 0 by nature: the provider has charged, and nobody is left who knows the answer. It is asked again, with the
same seed.

² Somebody ended a workflow on purpose, its parent failed for it, and the run was started again by name (so often).

³ So many sandboxes were left for the janitor, and gone after its pass: a terminated workflow runs no clean-up.

⁴ A call was in flight when somebody ended its rollout on purpose. A cancel hangs up on it, so that nothing more is
paid for work that nobody wants; a provider that goes on all the same has answered to nobody. Only where the run is
then started again is it asked again.
"""


def document(results: Mapping[tuple[str, str], CellResult], undisturbed: Run) -> str:
    kinds = faults()
    lines = [
        "# Fault matrix",
        "",
        f"Measured on {machine()}: {len(results)} cells, each with {len(undisturbed.rewards)} rollouts and "
        f"{undisturbed.calls} commands.",
        "",
        f"| fault | {' | '.join(phase.title for phase in PHASES.values())} |",
        f"|---|{'---|' * len(PHASES)}",
    ]
    for name, fault in kinds.items():
        cells = (shown(results.get((name, phase))) for phase in PHASES)
        lines.append(f"| {fault.title} | {' | '.join(cells)} |")
    return "\n".join([*lines, "", totals(results), "", LEGEND])


def shown(result: CellResult | None) -> str:
    if result is None:
        return "–"
    if result.missed:
        return f"✗ {'; '.join(result.missed).replace('|', '/')}"
    notes = ["¹"] if result.bill.died else []
    notes += ["⁴"] if result.bill.hung_up else []
    notes += [f"²({result.restarts})"] if result.restarts else []
    notes += [f"³({result.to_janitor})"] if result.to_janitor else []
    return f"✓ {result.recovery:g} s {' '.join(notes)}".strip()


def totals(results: Mapping[tuple[str, str], CellResult]) -> str:
    cells = list(results.values())
    good = sum(not cell.missed for cell in cells)
    return (
        f"In all, {good} of {len(cells)} cells are as promised. "
        f"Lost {sum(cell.lost for cell in cells)}, repaid {sum(cell.bill.repaid for cell in cells)}, "
        f"re-run {sum(cell.rerun for cell in cells)}, "
        f"rewards changed {sum(cell.rewards_changed for cell in cells)}, "
        f"orphans {sum(len(cell.orphans) for cell in cells)}; "
        f"answered into a dead process {sum(cell.bill.died for cell in cells)}, "
        f"to somebody who hung up on purpose {sum(cell.bill.hung_up for cell in cells)}."
    )
