"""Play the cells of the fault matrix, all or those chosen, and write it."""

import argparse
import asyncio
import sys
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any

from temporalio.runtime import LoggingConfig, Runtime, TelemetryConfig, TelemetryFilter

from chaos import soak
from chaos.faults import FAULTS
from chaos.lanes import LANES
from chaos.plays import KeptPlays, Name, Play
from chaos.table import AnyTable, shown
from chaos.tables import TABLES, put
from chaos.version import code_version

PLAYS = Path(".clotho/chaos")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m chaos", description=__doc__)
    parser.add_argument("--table", action="append", choices=[table.name for table in TABLES])
    parser.add_argument(
        "--fault", action="append", choices=[name for table in TABLES for name in table.faults]
    )
    parser.add_argument("--phase", action="append", choices=phases())
    parser.add_argument(
        "--resume", action="store_true", help="play only what this version of the code hasn't"
    )
    parser.add_argument("--plays", type=int, default=1, help="of each cell")
    parser.add_argument("--lanes", type=int, default=LANES, help="cells side by side")
    parser.add_argument("--write", type=Path, help="the document to write the matrix to")
    parser.add_argument("--soak", type=float, metavar="MINUTES", help="random faults on larger runs instead")
    parser.add_argument("--seed", type=int, default=1, help="of --soak")
    return parser.parse_args()


def phases() -> list[str]:
    return list(dict.fromkeys(name for table in TABLES for name in table.phases))


def main() -> None:
    options = arguments()
    # The SDK warns at every retry of a call to a server that was killed on purpose.
    quiet = TelemetryConfig(logging=LoggingConfig(filter=TelemetryFilter("ERROR", "ERROR")))
    Runtime.set_default(Runtime(telemetry=quiet))
    sys.exit(not (soaked(options) if options.soak else played(options)))


def soaked(options: argparse.Namespace) -> bool:
    """Whether every round kept every promise."""
    repeatable = [name for name, fault in FAULTS.items() if fault.repeatable]
    kinds = [name for name in repeatable if name in (options.fault or repeatable)]
    if not kinds:
        sys.exit(f"--soak strikes with {', '.join(repeatable)}")
    return asyncio.run(soak.soak(options.soak, kinds, options.seed, say))


def played(options: argparse.Namespace) -> bool:
    """Whether no play of the cells that were asked for missed a target."""
    version = code_version()
    asked = [(table, names) for table in TABLES if (names := asked_for(table, options))]
    if not asked:
        sys.exit("None of these cells can be played here.")
    kept = {table.name: KeptPlays(PLAYS / version / table.name, table.kind) for table, _ in asked}
    for table, names in asked:
        play(table, names, kept[table.name], options)
    plays = {table.name: kept[table.name].all() for table, _ in asked}
    if options.write:
        put(options.write, {table.name: table.document(plays[table.name], version) for table, _ in asked})
    for table, _ in asked:
        say(table.totals(plays[table.name]))
    return not any(
        each.missed for table, names in asked for name in names for each in plays[table.name][name]
    )


def asked_for(table: AnyTable, options: argparse.Namespace) -> Sequence[Name]:
    """Those of its cells that can be played here."""
    if (table.by_name_only and not options.table) or table.name not in (options.table or [table.name]):
        return ()
    names = [
        (fault, phase)
        for fault, phase in product(table.faults, table.phases)
        if fault in (options.fault or [fault]) and phase in (options.phase or [phase])
    ]
    if names and (reason := table.lacking()):
        say(f"{table.name}: not played: {reason}")
        return ()
    return list(filter(table.there_is, names))


def play(table: AnyTable, names: Sequence[Name], kept: KeptPlays[Any], options: argparse.Namespace) -> None:
    """Play each cell as often as is asked for; `--resume` counts what was played before."""

    def keep(result: Play) -> None:
        kept.add(result)
        say(f"{result.fault:18} {result.phase:14} {shown([result])}  [{result.seconds:g} s]")

    done = kept.all() if options.resume else {}
    left = [name for name in names for _ in range(options.plays - len(done.get(name, ())))]
    if left:
        asyncio.run(table.play_all(left, keep, options.lanes))


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
