"""The machine that a benchmark ran on."""

import os
import platform
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

LOOP = """
import time
total = 0
for number in range(10_000_000):
    total += number * number
print(time.process_time())
"""


def machine() -> str:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    python, files = platform.python_version(), file_system(tempfile.gettempdir())
    return f"{os.cpu_count()} cores, {memory:.0f} GiB of memory, Linux, Python {python}, files on {files}"


def file_system(folder: str) -> str:
    """The kind of file system that `folder` is in."""
    command = ["findmnt", "-f", "-n", "-r", "-o", "FSTYPE,MAJ:MIN", "-T", folder]
    kind, number = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    device = Path(f"/sys/dev/block/{number}").resolve().name
    journal = Path(f"/sys/fs/{kind}/{device}/journal_task")
    unjournalled = journal.exists() and journal.read_text().strip() == "<none>"
    return f"{kind} without a journal" if unjournalled else kind


def loop_seconds() -> float:
    """The processor time of 10 million steps of a loop in Python, on all cores at once.

    Cores may be threads of one, and other guests of a virtual machine's host slow them down by half.
    """
    command = [sys.executable, "-S", "-c", LOOP]
    loops = [subprocess.Popen(command, stdout=subprocess.PIPE) for _ in range(os.cpu_count() or 1)]
    return statistics.mean(float(each.communicate()[0]) for each in loops)
