"""Its table of the fault matrix."""

from chaos.delivery.cell import play_all
from chaos.delivery.faults import FAULTS, PHASES
from chaos.delivery.results import DeliveryResult
from chaos.delivery.size import GROUP_SIZE, GROUPS, GROUPS_PER_BATCH
from chaos.table import Table

LEGEND = f"""\
Each cell is a run of its own through Atropos: a worker, the adapter, the durable API and a trainer that checks
batches, as processes; {GROUPS} groups of {GROUP_SIZE}, sampled with their tokens by the embedded model, in
batches of {GROUPS_PER_BATCH} groups. A process is held exactly at the phase, by a failpoint of the worker, the
adapter, the API or the trainer, when those that the row names are killed, and started again at once.

A cell is ✓ with the seconds from the kill until the trainer has the group that was at the phase, or its next
one if it had that (Atropos itself lets every starting adapter wait 5 s), if all of these hold. Else it says
which one doesn't:

- **lost 0**: the trainer got every group that it gets undisturbed.
- **queued twice 0**: the API's queue held each group once, counted by the batches it formed and what was left.
- **changed 0**: tokens, masks, scores and logprobs of every group are those of an undisturbed run with the same
  seeds.
- **faulty batches 0**: the trainer's checks found nothing in any batch.
- **orphans 0**: after the clean-up by a worker no sandbox, and no process of one, is left.

⁵ So many groups came to the trainer a second time, in a batch that the API had served before it was killed.
That can't be 0: fetching has no acknowledgement, so an API that dies before the next fetch doesn't know whether
its batch arrived, and would lose it otherwise. Only a killed API may do so, and its queue held the groups once.

⁶ So many groups were in a batch that the trainer had read, whole, and not noted when it was killed. They are the
trainer's by then: fetching has no acknowledgement, so the API can't tell a trainer that has noted its batch from
one that hasn't. In all other columns a trainer is killed where the column says, or between two batches.

⁷ So many groups have a turn that was resumed where its stream broke off, and says so (`resumed_turns`): what
follows was sampled with other numbers than undisturbed.
"""

TABLE = Table(
    name="delivery",
    heading="## Delivery to Atropos",
    cells="cells of delivery",
    faults=FAULTS,
    phases=PHASES,
    kind=DeliveryResult,
    play_all=play_all,
    legend=LEGEND,
)
