"""The memory of this process's descendants."""

import os
import signal
from contextlib import suppress
from pathlib import Path


def end_largest_over(most: int) -> None:
    """Kill the largest descendant that shows pages, if all descendants together have more than `most` bytes."""
    sizes = {process: _private_bytes(process) for process in _descendants(os.getpid())}
    # only pages: without its main process, the browser of all rollouts would end
    pages = {process: size for process, size in sizes.items() if _shows_pages(process)}
    if sum(sizes.values()) > most and pages:
        with suppress(ProcessLookupError):
            os.kill(max(pages, key=lambda process: pages[process]), signal.SIGKILL)


def _descendants(process: int) -> list[int]:
    found: list[int] = []
    # the kernel lists a child at the thread that started it
    for children in Path(f"/proc/{process}/task").glob("*/children"):
        for child in _read(children).split():
            found += [int(child), *_descendants(int(child))]
    return found


def _private_bytes(process: int) -> int:
    # not RSS: memory that Chromium's processes share would be counted for each of them
    lines = _read(Path(f"/proc/{process}/status")).splitlines()
    return next((int(line.split()[1]) << 10 for line in lines if line.startswith("RssAnon:")), 0)


def _shows_pages(process: int) -> bool:
    return "--type=renderer" in _read(Path(f"/proc/{process}/cmdline"))


def _read(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:  # it has ended
        return ""
