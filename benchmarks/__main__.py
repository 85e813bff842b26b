"""Run the benchmarks and print their table; `--write FILE` puts it into a document too."""

import argparse
import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks import (
    checkpoints,
    commands,
    containers,
    features,
    loop,
    sandboxes,
    stores,
    task_folders,
    tools,
    width,
)
from benchmarks.machine import machine
from benchmarks.peers import compare
from benchmarks.table import Row

BEGIN, END = "<!-- measured: begin -->", "<!-- measured: end -->"

Measure = Callable[[loop.Bench], Awaitable[list[Row]]]
LOOP: dict[str, Measure] = {
    "turn overhead": loop.turn_overhead,
    "throughput": loop.throughput,
    "short rollouts": width.short,
    "width": width.width,
    "peers": compare.measure,
    "history": loop.history,
    "durability": features.checkpoints,
    "pause": features.pause,
}


async def measure(only: str | None) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = {}
    wanted = {name: run for name, run in LOOP.items() if only in (None, name)}
    if wanted:
        async with loop.bench() as measured:
            for name, run in wanted.items():
                found[name] = await run(measured)
    if only in (None, "commands"):
        found["commands"] = await commands.measure()
    if only in (None, "sandboxes"):
        found["sandboxes"] = [*await sandboxes.measure(), *await containers.measure()]
    if only in (None, "task folders"):
        found["task folders"] = await task_folders.measure()
    if only in (None, "checkpoints"):
        found["checkpoints"] = await checkpoints.measure()
    if only in (None, "stores"):
        found["stores"] = await stores.measure()
    if only in (None, "tools"):
        found["tools"] = await tools.measure()
    if only in (None, "training"):
        # Imported here: Atropos takes seconds, and no other row needs it.
        from benchmarks import training

        async with loop.bench() as measured:
            found["training"] = await training.measure(measured)
    return found


def markdown(found: dict[str, list[Row]]) -> str:
    lines = [f"Measured on {machine()}.", "", "| | | measured | aim |", "|---|---|---|---|"]
    lines += [
        f"| {name} | {row.what} | {row.figure} | {row.aim} |" for name, rows in found.items() for row in rows
    ]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks")
    parser.add_argument(
        "--only",
        choices=[
            *LOOP,
            "commands",
            "sandboxes",
            "task folders",
            "checkpoints",
            "stores",
            "tools",
            "training",
        ],
    )
    parser.add_argument("--write", type=Path, help="a document with the marks between which the table goes")
    options = parser.parse_args()
    found = asyncio.run(measure(options.only))
    table = Table("", "", "measured", "aim", title=machine())
    for name, rows in found.items():
        for row in rows:
            table.add_row(name, row.what, row.figure, row.aim)
    Console().print(table)
    if options.write:
        head, _, rest = options.write.read_text().partition(BEGIN)
        tail = rest.partition(END)[2]
        options.write.write_text(f"{head}{BEGIN}\n{markdown(found)}\n{END}{tail}")


if __name__ == "__main__":
    main()
