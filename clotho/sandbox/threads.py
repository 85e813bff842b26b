"""Threads for what blocks, apart from the loop's own pool: that one may be full of callers who wait for these."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar, TypeVarTuple

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

_files = ThreadPoolExecutor(8, thread_name_prefix="sandbox-files")
_archives = ThreadPoolExecutor(4, thread_name_prefix="sandbox-archives")
_sandboxes = ThreadPoolExecutor(16, thread_name_prefix="sandbox-hosts")


async def with_files(function: Callable[[*Ts], T], *arguments: *Ts) -> T:
    """For a few operations on files."""
    return await asyncio.get_running_loop().run_in_executor(_files, function, *arguments)


async def with_sandboxes(function: Callable[[*Ts], T], *arguments: *Ts) -> T:
    """For making and ending sandboxes, which take long and wait for each other."""
    return await asyncio.get_running_loop().run_in_executor(_sandboxes, function, *arguments)


async def with_archives(function: Callable[[*Ts], T], *arguments: *Ts) -> T:
    """For checkpoints, whose compression takes a core each."""
    return await asyncio.get_running_loop().run_in_executor(_archives, function, *arguments)
