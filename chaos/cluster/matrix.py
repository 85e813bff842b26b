"""Its table of the fault matrix, and the plays of its cells one after another."""

from collections.abc import Callable, Sequence

from chaos.cluster.cell import PHASE, ClusterResult, play, undisturbed
from chaos.cluster.faults import FAULTS, MOVES
from chaos.cluster.programs import lacking
from chaos.cluster.stage import HOSTS, SIZE, cluster_servers_in
from chaos.plays import Name
from chaos.scratch import scratch
from chaos.table import Table, Title
from clotho.processes.liveness import LIVENESS_SECONDS

LEGEND = f"""\
Each row is a run of {SIZE.groups * SIZE.group_size} rollouts over {HOSTS} hosts: network namespaces, each with a
home, a name, a folder for sandboxes and a worker of its own. They share two processes of Temporal's production
server on PostgreSQL, an S3 server and a model provider. `make chaos-cluster` writes this section; it takes root,
PostgreSQL, faketime and Go.

A row is ✓ with the seconds until the slowest rollout that was open had its next journal entry, if lost, repaid,
re-run, rewards changed and orphans are 0, as above. Seconds count from the strike; where nothing can go on before
what failed is back, from then. Work of a dead host goes on elsewhere after {MOVES:g} s:
{MOVES - LIVENESS_SECONDS:g} s in its queue and {LIVENESS_SECONDS:g} s of silence.

¹ So many answers went to a host that was killed before it could write them. They can't be had again.

² So many answers were paid for twice: the host lived, but was cut off from the store for so long that it was taken
for gone, and its turns were asked for elsewhere. The answer that is written first counts. A process that asks in
another's stead looks for the other's answer meanwhile, and hangs up when it appears.
"""


async def play_all(names: Sequence[Name], keep: Callable[[ClusterResult], None], lanes: int) -> None:
    """One after another, in any number of lanes; servers are made anew after a cell that came to no count."""
    waiting = list(names)
    async with scratch() as folder:
        servings = 0
        while waiting:
            servings += 1
            async with cluster_servers_in(folder / f"cluster-{servings}") as servers:
                expected = await undisturbed(servers)
                while waiting:
                    fault, _ = waiting.pop(0)
                    result = await play(servers, fault, FAULTS[fault], expected)
                    keep(result)
                    if result.problem:
                        break


TABLE = Table(
    name="cluster",
    heading="## Three hosts",
    cells="cells of a cluster",
    faults=FAULTS,
    phases={PHASE: Title("while it runs")},
    kind=ClusterResult,
    play_all=play_all,
    lacking=lacking,
    by_name_only=True,
    legend=LEGEND,
)
