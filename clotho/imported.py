"""Imports at run time: classes named as `module:Class`, and packages that few runs need."""

import asyncio
import importlib
from typing import Any

from clotho.errors import InvalidInput

BACKEND_OF_ANYIO = "anyio._backends._asyncio"
"""What httpx and mcp import, on the event loop, where a process first connects."""


def imported(name: str, what: str) -> Any:
    """The class called `module:Class`. Raises InvalidInput, which says `what` it should be, where there is none."""
    module, _, attribute = name.partition(":")
    try:
        return getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise InvalidInput(f"{what} {name} can't be imported: {error}") from error


async def load(*modules: str) -> None:
    """Import `modules` in a thread: the event loop would stand still for half a second with a large one."""
    await asyncio.to_thread(lambda: list(map(importlib.import_module, modules)))
