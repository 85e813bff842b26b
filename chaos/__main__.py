"""Play the cells of the fault matrix, all or those chosen, and write it."""

import argparse
import asyncio
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from temporalio.runtime import LoggingConfig, Runtime, TelemetryConfig, TelemetryFilter

from chaos import matrix, soak
from chaos.faults import faults
from chaos.lanes import LANES, Name, play_all
from chaos.phases import PHASES
from chaos.results import CellResult
from chaos.version import code_version

RESULTS = Path(".clotho/chaos")


class Results:
    """What cells came to with this version of the code, on disk: every play of a cell is kept, and counts."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def keep(self, result: CellResult) -> None:
        number = len(self.all().get((result.fault, result.phase), ()))
        file = self._folder / f"{result.fault}--{result.phase}--{number}.json"
        file.write_text(result.model_dump_json(indent=1))
        say(f"{result.fault:18} {result.phase:14} {matrix.shown([result])}  [{result.seconds:g} s]")

    def all(self) -> Mapping[Name, Sequence[CellResult]]:
        found: dict[Name, list[CellResult]] = {}
        for file in sorted(self._folder.glob("*.json")):
            result = CellResult.model_validate_json(file.read_text())
            found.setdefault((result.fault, result.phase), []).append(result)
        return found


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m chaos", description=__doc__)
    parser.add_argument("--fault", action="append", choices=list(faults()))
    parser.add_argument("--phase", action="append", choices=list(PHASES))
    parser.add_argument(
        "--resume", action="store_true", help="play only what this version of the code hasn't"
    )
    parser.add_argument("--lanes", type=int, default=LANES, help="cells side by side")
    parser.add_argument("--write", type=Path, help="the document to write the matrix to")
    parser.add_argument("--soak", type=float, metavar="MINUTES", help="random faults on larger runs instead")
    parser.add_argument("--seed", type=int, default=1, help="of --soak")
    return parser.parse_args()


def main() -> None:
    options = arguments()
    # The SDK warns at every retry of a call to a server that was killed on purpose.
    quiet = TelemetryConfig(logging=LoggingConfig(filter=TelemetryFilter("ERROR", "ERROR")))
    Runtime.set_default(Runtime(telemetry=quiet))
    if options.soak:
        sys.exit(not asyncio.run(soak.soak(options.soak, options.fault or list(faults()), options.seed, say)))
    version = code_version()
    results = Results(RESULTS / version)
    done = set(results.all()) if options.resume else set()
    chosen = [(fault, phase) for fault in options.fault or faults() for phase in options.phase or PHASES]
    names = [name for name in chosen if name not in done]
    expected = asyncio.run(play_all(names, faults(), results.keep, options.lanes))
    played = results.all()
    if options.write:
        options.write.write_text(matrix.document(played, expected, version))
    say(matrix.totals(played))
    sys.exit(any(result.missed for name in chosen for result in played[name]))


if __name__ == "__main__":
    main()
