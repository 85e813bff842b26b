"""Run the benchmarks and print their table; `--write FILE` puts it into a document too.

With `--only` the document keeps the rows of the other sections.
"""

import argparse
import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks import (
    checkpoints,
    commands,
    containers,
    features,
    harness,
    loop,
    rests,
    sandboxes,
    stores,
    task_folders,
    tools,
    turns,
    width,
)
from benchmarks.machine import loop_seconds, machine
from benchmarks.peers import compare
from benchmarks.table import Row

BEGIN, END = "<!-- measured: begin -->", "<!-- measured: end -->"

Measure = Callable[[loop.Bench], Awaitable[list[Row]]]
LOOP: dict[str, Measure] = {
    "turn overhead": loop.turn_overhead,
    "throughput": loop.throughput,
    "short rollouts": width.short,
    "width": width.width,
    "real turns": turns.real,
    "quick turns": turns.quick,
    "peers": compare.measure,
    "history": loop.history,
    "durability": features.checkpoints,
    "pause": features.pause,
    "rests": rests.measure,
    "harness": harness.measure,
}


async def _sandboxes() -> list[Row]:
    return [*await sandboxes.measure(), *await containers.measure()]


async def _training() -> list[Row]:
    # Imported here: Atropos takes seconds, and no other row needs it.
    from benchmarks import training

    async with loop.bench() as measured:
        return await training.measure(measured)


OTHERS: dict[str, Callable[[], Awaitable[list[Row]]]] = {
    "commands": commands.measure,
    "sandboxes": _sandboxes,
    "task folders": task_folders.measure,
    "checkpoints": checkpoints.measure,
    "stores": stores.measure,
    "tools": tools.measure,
    "training": _training,
}
SECTIONS = (*LOOP, *OTHERS)


async def measure(sections: Collection[str]) -> AsyncIterator[tuple[str, list[Row]]]:
    """Each section's rows as soon as they are measured: a run of an hour keeps them when a later section fails."""
    wanted = {name: run for name, run in LOOP.items() if name in sections}
    if wanted:
        async with loop.bench() as measured:
            for name, run in wanted.items():
                yield name, await _with_speed(run(measured))
    for name, alone in OTHERS.items():
        if name in sections:
            yield name, await _with_speed(alone())


async def _with_speed(measured: Awaitable[list[Row]]) -> list[Row]:
    """The rows, and the speed of the machine before and after, by which those of different hours are compared."""
    before = loop_seconds()
    rows = await measured
    loops = f"{before:.2f} s before, {loop_seconds():.2f} s after"
    return [*rows, Row("… meanwhile, a loop in Python on all cores", loops)]


def line(section: str, row: Row) -> str:
    return f"| {section} | {row.what} | {row.figure} | {row.aim} |"


def markdown(found: dict[str, list[Row]], before: str) -> str:
    """The table: rows of sections that weren't measured are those of the table `before`."""
    lines = [f"Measured on {machine()}.", "", "| | | measured | aim |", "|---|---|---|---|"]
    for section in SECTIONS:
        if section in found:
            lines += [line(section, row) for row in found[section]]
        else:
            lines += [each for each in before.splitlines() if each.startswith(f"| {section} |")]
    return "\n".join(lines)


def write(document: Path, found: dict[str, list[Row]]) -> None:
    head, _, rest = document.read_text().partition(BEGIN)
    before, _, tail = rest.partition(END)
    document.write_text(f"{head}{BEGIN}\n{markdown(found, before)}\n{END}{tail}")


async def run(sections: Collection[str], document: Path | None) -> None:
    table = Table("", "", "measured", "aim", title=machine())
    try:
        async for section, rows in measure(sections):
            for row in rows:
                table.add_row(section, row.what, row.figure, row.aim)
            if document:
                write(document, {section: rows})
    finally:
        Console().print(table)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks")
    parser.add_argument(
        "--only", action="append", choices=SECTIONS, help="a section, in place of all; may be given again"
    )
    parser.add_argument("--write", type=Path, help="a document with the marks between which the table goes")
    options = parser.parse_args()
    asyncio.run(run(options.only or SECTIONS, options.write))


if __name__ == "__main__":
    main()
