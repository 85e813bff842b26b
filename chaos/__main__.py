"""Play the cells of the fault matrix, all or those chosen, and write it."""

import argparse
import asyncio
import sys
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from chaos import matrix, soak
from chaos.cell import play, undisturbed
from chaos.faults import faults
from chaos.phases import PHASES
from chaos.results import CellResult, Run
from chaos.stage import Servers, Size, servers_in

RESULTS = Path(".clotho/chaos")
LANES = 3
"""Most of a cell is waiting: two cores carry three."""

Name = tuple[str, str]


class Gallery:
    """Results on disk, one file a cell."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def keep(self, result: CellResult) -> None:
        (self._folder / f"{result.fault}--{result.phase}.json").write_text(result.model_dump_json(indent=1))

    def all(self) -> dict[Name, CellResult]:
        files = sorted(self._folder.glob("*--*.json"))
        results = [CellResult.model_validate_json(file.read_text()) for file in files]
        return {(result.fault, result.phase): result for result in results}


@asynccontextmanager
async def scratch() -> AsyncIterator[Path]:
    """A folder that the users of sandboxes may pass through."""
    with tempfile.TemporaryDirectory(prefix="clotho-chaos-") as name:
        folder = Path(name)
        await asyncio.to_thread(folder.chmod, 0o711)
        yield folder


async def play_all(names: Sequence[Name], lanes: int, gallery: Gallery) -> Run:
    """Lanes play cells side by side, each one after another on servers of its own."""
    waiting = list(reversed(names))
    size = Size()
    async with scratch() as folder:
        async with servers_in(folder / "first") as servers:
            expected = await undisturbed(servers, "undisturbed", size)

        async def lane(number: int) -> None:
            async with servers_in(folder / f"lane-{number}") as servers:
                while waiting:
                    await one(servers, waiting.pop())

        async def one(servers: Servers, name: Name) -> None:
            fault, phase = name
            result = await play(servers, name, faults()[fault], PHASES[phase], size, expected)
            gallery.keep(result)
            say(f"{fault:18} {phase:14} {matrix.shown(result)}  [{result.seconds:g} s]")

        async with asyncio.TaskGroup() as tasks:
            for number in range(min(lanes, len(names))):
                tasks.create_task(lane(number))
    return expected


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m chaos", description=__doc__)
    parser.add_argument("--fault", action="append", choices=list(faults()))
    parser.add_argument("--phase", action="append", choices=list(PHASES))
    parser.add_argument("--resume", action="store_true", help="keep what was played before; play the rest")
    parser.add_argument(
        "--failed", action="store_true", help="with --resume: play again what missed a target"
    )
    parser.add_argument("--lanes", type=int, default=LANES, help="cells side by side")
    parser.add_argument("--write", type=Path, help="the document to write the matrix to")
    parser.add_argument("--soak", type=float, metavar="MINUTES", help="random faults on larger runs instead")
    options = parser.parse_args()
    if options.soak:
        sys.exit(asyncio.run(soak.soak(options.soak, say)))
    gallery = Gallery(RESULTS)
    played = {
        name
        for name, result in gallery.all().items()
        if options.resume and not (options.failed and result.faults_found)
    }
    chosen = [(fault, phase) for fault in options.fault or faults() for phase in options.phase or PHASES]
    expected = asyncio.run(play_all([name for name in chosen if name not in played], options.lanes, gallery))
    results = gallery.all()
    if options.write:
        options.write.write_text(matrix.document(results, expected))
    say(matrix.totals(results))
    sys.exit(any(results[name].faults_found for name in chosen))


if __name__ == "__main__":
    main()
