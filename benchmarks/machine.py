"""The machine that a benchmark ran on."""

import os
import platform


def machine() -> str:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return f"{os.cpu_count()} cores, {memory:.0f} GiB of memory, Linux, Python {platform.python_version()}"
