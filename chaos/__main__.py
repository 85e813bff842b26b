"""Play the cells of the fault matrix, all or those chosen, and write it."""

import argparse
import asyncio
import sys
from pathlib import Path

from temporalio.runtime import LoggingConfig, Runtime, TelemetryConfig, TelemetryFilter

from chaos import matrix, soak
from chaos.faults import faults
from chaos.lanes import LANES, Name, play_all
from chaos.phases import PHASES
from chaos.results import CellResult

RESULTS = Path(".clotho/chaos")


class Results:
    """What cells came to, on disk, one file a cell."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def keep(self, result: CellResult) -> None:
        (self._folder / f"{result.fault}--{result.phase}.json").write_text(result.model_dump_json(indent=1))
        name = f"{result.fault:18} {result.phase:14}"
        say(f"{name} {matrix.shown(result)}  [{result.seconds:g} s]")

    def all(self) -> dict[Name, CellResult]:
        files = sorted(self._folder.glob("*--*.json"))
        results = [CellResult.model_validate_json(file.read_text()) for file in files]
        return {(result.fault, result.phase): result for result in results}


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m chaos", description=__doc__)
    parser.add_argument("--fault", action="append", choices=list(faults()))
    parser.add_argument("--phase", action="append", choices=list(PHASES))
    parser.add_argument("--resume", action="store_true", help="play only what wasn't, or missed a target")
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
    results = Results(RESULTS)
    done = {name for name, result in results.all().items() if options.resume and not result.missed}
    chosen = [(fault, phase) for fault in options.fault or faults() for phase in options.phase or PHASES]
    names = [name for name in chosen if name not in done]
    expected = asyncio.run(play_all(names, faults(), results.keep, options.lanes))
    played = results.all()
    if options.write:
        options.write.write_text(matrix.document(played, expected))
    say(matrix.totals(played))
    sys.exit(any(played[name].missed for name in chosen))


if __name__ == "__main__":
    main()
