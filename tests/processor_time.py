"""The processor time of a process: unlike time that passes, it is the same however busy the machine is."""

import os
from pathlib import Path


def processor_seconds(pid: int) -> float:
    """Of all its threads so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")
