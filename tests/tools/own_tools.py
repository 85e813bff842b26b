"""Tools declared as functions, well and badly behaved."""

import asyncio
import itertools
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import date
from enum import StrEnum
from typing import Any

from pydantic import BaseModel, Field

from clotho.environment import AsyncToolContext, StatefulTools, ToolContext, tool

RELEASED = threading.Event()
CALLS: list[str] = []
"""What was called: these functions run in the tests' own process."""


class Colour(StrEnum):
    RED = "red"
    BLUE = "blue"


class Point(BaseModel):
    x: int
    y: int = 0


class Tree(BaseModel):
    branches: list["Tree"] = []

    def count(self) -> int:
        return 1 + sum(branch.count() for branch in self.branches)


@dataclass
class Found:
    when: date
    points: list[Point]


@tool(idempotent=True)
def draw(
    points: list[Point],
    colour: Colour,
    when: date,
    note: str | None = None,
    width: float = 1.0,
    shade: int = Field(3, ge=0),
) -> Found:
    """Draw points.

    They are kept.

    Args:
        points: Where to draw,
            one after the other.
        colour (Colour): In which colour.

    Returns:
        What was drawn.
    """
    assert isinstance(colour, Colour) and width > 0 and note != "" and shade == 3
    return Found(when, points)


@tool(read_only=True)
def plant(tree: Tree) -> int:
    """Count the branches of a tree."""
    return tree.count()


@tool(read_only=True)
async def read_twice(path: str, ctx: AsyncToolContext) -> str:
    """Read a file, twice."""
    first, second = await asyncio.gather(ctx.read_bytes(path), ctx.read_bytes(path))
    return ((first or b"") + (second or b"")).decode()


@tool
def note(text: str, ctx: ToolContext) -> str:
    """Append a line to /work/notes, and tell how many there are."""
    CALLS.append(text)
    return str(ctx.terminal(f"echo {text} >> /work/notes; wc -l < /work/notes")["output"]).strip()


@tool(idempotent=True)
def set_note(text: str, ctx: ToolContext) -> bool:
    """Write /work/notes, from within another directory."""
    ctx.terminal("cd /tmp")
    ctx.write_bytes("/work/notes", text.encode())
    return True


@tool
def swallow(ctx: ToolContext) -> str:
    """Swallow every error."""
    with suppress(Exception):
        ctx.terminal("true")
    return "all is well"


@tool
def write_to(path: str, ctx: ToolContext) -> str:
    """Write a file."""
    ctx.write_bytes(path, b"x")
    return "written"


@tool
def fail(kind: str) -> None:
    """Raise an exception."""
    CALLS.append(kind)
    kinds: dict[str, BaseException] = {
        "value": ValueError("no such thing"),
        "exit": SystemExit(3),
        "stop": StopIteration(),
        "interrupt": KeyboardInterrupt(),
    }
    raise kinds[kind]


@tool(seconds=0.3)
def block() -> None:
    """Block the thread."""
    RELEASED.wait()


@tool(seconds=0.3)
async def block_loop() -> None:
    """Block the event loop that it runs in."""
    RELEASED.wait()


@tool(seconds=0.3)
async def wait_for_ever() -> None:
    """Await what never comes."""
    await asyncio.Event().wait()


@tool
def odd(kind: str) -> Any:
    """Return something odd."""
    cycle: list[Any] = []
    cycle.append(cycle)
    kinds: dict[str, Any] = {
        "object": object(),
        "cycle": cycle,
        "infinity": float("inf"),
        "surrogate": "\ud800",
        "none": None,
        "text": "plain text",
    }
    return kinds[kind]


@tool(seconds=0.3)
def endless() -> Iterator[int]:
    """Return what has no end, slowly: the memory that it takes until it is given up has one."""
    return itertools.takewhile(lambda _: not RELEASED.wait(0.001), itertools.repeat(1))


class Counter(StatefulTools):
    total: int = 0
    last: Any = None

    @tool(idempotent=True)
    def add(self, number: int) -> int:
        """Add a number."""
        self.total += number
        if self.total > 100:
            raise ValueError("too much")
        return self.total

    @tool(read_only=True)
    def total_so_far(self) -> int:
        """Tell the total."""
        return self.total

    @tool
    def keep(self, what: str) -> None:
        """Keep something that may be no JSON."""
        self.last = object() if what == "object" else "x" * 300_000
