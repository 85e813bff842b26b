"""The machine that a benchmark ran on."""

import os
import platform
import statistics
import subprocess
import sys

LOOP = """
import time
total = 0
for number in range(10_000_000):
    total += number * number
print(time.process_time())
"""


def machine() -> str:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return f"{os.cpu_count()} cores, {memory:.0f} GiB of memory, Linux, Python {platform.python_version()}"


def loop_seconds() -> float:
    """The processor time of 10 million steps of a loop in Python, on all cores at once.

    Cores may be threads of one, and other guests of a virtual machine's host slow them down by half.
    """
    command = [sys.executable, "-S", "-c", LOOP]
    loops = [subprocess.Popen(command, stdout=subprocess.PIPE) for _ in range(os.cpu_count() or 1)]
    return statistics.mean(float(each.communicate()[0]) for each in loops)
