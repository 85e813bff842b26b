"""Play the cells of the fault matrix, all or those chosen, and write it."""

import argparse
import asyncio
import sys
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Generic, TypeVar

from temporalio.runtime import LoggingConfig, Runtime, TelemetryConfig, TelemetryFilter

from chaos import lanes, matrix, soak, ssh_host, storm
from chaos.cluster import matrix as cluster_matrix
from chaos.cluster import programs as cluster_programs
from chaos.cluster.cell import PHASE as CLUSTER
from chaos.cluster.cell import ClusterResult
from chaos.cluster.faults import FAULTS as CLUSTER_FAULTS
from chaos.containers import engine
from chaos.containers import matrix as container_matrix
from chaos.containers.faults import FAULTS as CONTAINER_FAULTS
from chaos.delivery import matrix as delivery_matrix
from chaos.delivery.cell import play_all as play_deliveries
from chaos.delivery.faults import FAULTS as DELIVERY_FAULTS
from chaos.delivery.faults import PHASES as DELIVERY_PHASES
from chaos.delivery.results import DeliveryResult
from chaos.faults import FAULTS
from chaos.harness import faults as harness_faults
from chaos.harness import matrix as harness_matrix
from chaos.harness import restarts
from chaos.harness.play import play_all as play_harnesses
from chaos.harness.scripts import REAL
from chaos.lanes import LANES
from chaos.phases import EVERY_PHASE, PHASES
from chaos.results import CellResult
from chaos.table import Name, shown
from chaos.tools import faults as tool_faults
from chaos.tools import matrix as tool_matrix
from chaos.tools.play import play_all as play_tools
from chaos.version import code_version

RESULTS = Path(".clotho/chaos")

R = TypeVar("R", CellResult, DeliveryResult, restarts.RestartResult, ClusterResult)


class Results(Generic[R]):
    """Results of cells on disk, for this version of the code. Every play of a cell is kept, and counts."""

    def __init__(self, folder: Path, kind: type[R]) -> None:
        self._folder = folder
        self._kind: type[R] = kind
        folder.mkdir(parents=True, exist_ok=True)

    def keep(self, result: R) -> None:
        number = len(self.all().get((result.fault, result.phase), ()))
        file = self._folder / f"{result.fault}--{result.phase}--{number}.json"
        file.write_text(result.model_dump_json(indent=1))
        say(f"{result.fault:18} {result.phase:14} {shown([result])}  [{result.seconds:g} s]")

    def all(self) -> Mapping[Name, Sequence[R]]:
        found: dict[Name, list[R]] = {}
        for file in sorted(self._folder.glob("*.json")):
            result = self._kind.model_validate_json(file.read_text())
            found.setdefault((result.fault, result.phase), []).append(result)
        return found

    def good(self, names: Sequence[Name]) -> bool:
        """Whether no play of these cells missed a target."""
        played = self.all()
        return not any(result.missed for name in names for result in played[name])


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m chaos", description=__doc__)
    parser.add_argument("--fault", action="append", choices=every_fault())
    parser.add_argument("--phase", action="append", choices=every_phase())
    parser.add_argument(
        "--resume", action="store_true", help="play only what this version of the code hasn't"
    )
    parser.add_argument("--lanes", type=int, default=LANES, help="cells side by side")
    parser.add_argument("--write", type=Path, help="the document to write the matrix to")
    parser.add_argument("--soak", type=float, metavar="MINUTES", help="random faults on larger runs instead")
    parser.add_argument("--storm", type=int, metavar="PLAYS", help="storms over verification instead")
    parser.add_argument("--seed", type=int, default=1, help="of --soak")
    parser.add_argument("--cluster", action="store_true", help="faults of three hosts instead")
    return parser.parse_args()


def every_fault() -> list[str]:
    of_harnesses = [*harness_faults.FAULTS, *REAL]
    return [*FAULTS, *CONTAINER_FAULTS, *tool_faults.FAULTS, *of_harnesses, *DELIVERY_FAULTS, *CLUSTER_FAULTS]


def every_phase() -> list[str]:
    of_harnesses = [*harness_faults.PHASES, *restarts.OUTPUTS]
    return [*EVERY_PHASE, *tool_faults.PHASES, *of_harnesses, *DELIVERY_PHASES]


def playable() -> list[Name]:
    """The cells of the first table that this machine has what it takes for."""
    far = ssh_host.can_be_started()
    return [
        (name, phase)
        for name, fault in FAULTS.items()
        for phase in fault.phases
        if far or not fault.through_ssh
    ]


def chosen(options: argparse.Namespace, kinds: Collection[str], phases: Collection[str]) -> list[Name]:
    """The cells of one table that are asked for."""
    return asked_for(options, [(fault, phase) for fault in kinds for phase in phases])


def asked_for(options: argparse.Namespace, names: Sequence[Name]) -> list[Name]:
    return [
        (fault, phase)
        for fault, phase in names
        if fault in (options.fault or [fault]) and phase in (options.phase or [phase])
    ]


def main() -> None:
    options = arguments()
    # The SDK warns at every retry of a call to a server that was killed on purpose.
    quiet = TelemetryConfig(logging=LoggingConfig(filter=TelemetryFilter("ERROR", "ERROR")))
    Runtime.set_default(Runtime(telemetry=quiet))
    if options.soak:
        repeatable = [name for name, fault in FAULTS.items() if fault.repeatable]
        kinds = [name for name in repeatable if name in (options.fault or repeatable)]
        if not kinds:
            sys.exit(f"--soak strikes with {', '.join(repeatable)}")
        sys.exit(not asyncio.run(soak.soak(options.soak, kinds, options.seed, say)))
    version = code_version()
    if options.storm:
        played = asyncio.run(storm.storms(options.storm, say))
        if options.write:
            write(options.write, None, None, None, None, None, storm.document(played, version), None)
        sys.exit(not storm.good(played))
    if options.cluster:
        sys.exit(not play_cluster(options, version))
    rollouts = Results(RESULTS / version, CellResult)
    contained = Results(RESULTS / version / "containers", CellResult)
    tooled = Results(RESULTS / version / "tools", CellResult)
    harnessed = Results(RESULTS / version / "harness", CellResult)
    started_anew = Results(RESULTS / version / "restarts", restarts.RestartResult)
    deliveries = Results(RESULTS / version / "delivery", DeliveryResult)
    of_rollouts = asked_for(options, playable())
    of_contained = chosen(options, CONTAINER_FAULTS if engine.can_be_started() else (), PHASES)
    of_tools = asked_for(options, tool_faults.playable())
    of_harnesses = asked_for(options, harness_faults.playable())
    of_restarts = asked_for(options, restarts.playable())
    of_deliveries = chosen(options, DELIVERY_FAULTS, DELIVERY_PHASES)
    names = left(of_rollouts, rollouts, options)
    expected = None
    if names or (options.write and of_rollouts):
        expected = asyncio.run(lanes.play_all(names, FAULTS, rollouts.keep, options.lanes))
    if names := left(of_contained, contained, options):
        asyncio.run(lanes.play_all(names, CONTAINER_FAULTS, contained.keep, options.lanes, contained=True))
    asyncio.run(play_tools(left(of_tools, tooled, options), tooled.keep, options.lanes))
    asyncio.run(play_harnesses(left(of_harnesses, harnessed, options), harnessed.keep, options.lanes))
    asyncio.run(restarts.play_all(left(of_restarts, started_anew, options), started_anew.keep, options.lanes))
    asyncio.run(play_deliveries(left(of_deliveries, deliveries, options), deliveries.keep, options.lanes))
    if options.write:
        write(
            options.write,
            matrix.document(rollouts.all(), expected, version) if expected is not None else None,
            container_matrix.document(contained.all(), version) if of_contained else None,
            tool_matrix.document(tooled.all(), version) if of_tools else None,
            harness_matrix.document(harnessed.all(), started_anew.all(), version)
            if of_harnesses or of_restarts
            else None,
            delivery_matrix.document(deliveries.all(), version) if of_deliveries else None,
            None,
            None,
        )
    say(matrix.totals(rollouts.all()))
    say(container_matrix.totals(contained.all()))
    say(tool_matrix.totals(tooled.all()))
    say(harness_matrix.totals(harnessed.all()))
    say(delivery_matrix.totals(deliveries.all()))
    good = (
        rollouts.good(of_rollouts),
        contained.good(of_contained),
        tooled.good(of_tools),
        harnessed.good(of_harnesses),
        started_anew.good(of_restarts),
        deliveries.good(of_deliveries),
    )
    sys.exit(not all(good))


def play_cluster(options: argparse.Namespace, version: str) -> bool:
    """Play faults of the cluster; returns whether none missed a target."""
    if (reason := cluster_programs.lacking()) is not None:
        sys.exit(f"no cluster can be made here: {reason}")
    results = Results(RESULTS / version / "cluster", ClusterResult)
    names = asked_for(options, [(fault, CLUSTER) for fault in CLUSTER_FAULTS])
    played = [fault for fault, _ in left(names, results, options)]
    asyncio.run(cluster_matrix.play_all(played, results.keep))
    if options.write:
        section = cluster_matrix.document(results.all(), version)
        write(options.write, None, None, None, None, None, None, section)
    return results.good(names)


def write(document: Path, *matrices: str | None) -> None:
    """All matrices; one of which no cell was asked for stays as the document has it."""
    text = document.read_text() if document.exists() else ""
    rest, parts = text, list[str]()
    headings = (
        delivery_matrix.HEADING,
        harness_matrix.HEADING,
        tool_matrix.HEADING,
        container_matrix.HEADING,
    )
    for heading in (cluster_matrix.HEADING, storm.HEADING, *headings):
        rest, found, part = rest.partition(heading)
        parts.insert(0, found + part)
    wanted = [new or old for new, old in zip(matrices, (rest, *parts), strict=True)]
    document.write_text("\n\n".join(part.strip() for part in wanted if part) + "\n")


def left(names: Sequence[Name], results: Results[R], options: argparse.Namespace) -> list[Name]:
    done = results.all() if options.resume else {}
    return [name for name in names if name not in done]


if __name__ == "__main__":
    main()
