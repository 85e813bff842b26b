"""Probes of the isolation of this host's sandboxes."""

import ctypes
import hashlib
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

CHECKS = {
    "runs as PID 1 of its own": '[ "$$" = 1 ]',
    "is not root": '[ "$(id -u)" != 0 ]',
    "has no capabilities": "grep -Eq '^CapEff:\\s*0+$' /proc/self/status",
    "can't gain rights": "grep -Eq '^NoNewPrivs:\\s*1' /proc/self/status",
    "has a system call filter": "grep -Eq '^Seccomp:\\s*2' /proc/self/status",
    "can't make user namespaces": "! unshare --user true",
    "has no network": "[ \"$(tail -n +3 /proc/net/dev | cut -d: -f1 | tr -d ' ')\" = lo ]",
    "can't change kernel settings": "[ ! -w /proc/sys/kernel/core_pattern ]",
    "can't write to the system": "! touch /usr/probe /probe /dev/probe",
}
"""Properties of an isolated sandbox, as shell conditions that hold inside it."""

LANDLOCK_CREATE_RULESET, LANDLOCK_VERSION, LEAST_LANDLOCK = 444, 1, 3
"""A system call's number, its flag that asks for the version, and the first one that knows truncation."""

PACKAGE_LISTS = (
    "/etc/os-release",
    "/var/lib/dpkg/status",
    "/lib/apk/db/installed",
    "/var/lib/rpm/rpmdb.sqlite",
)


def failed_checks(
    command: Sequence[str], descriptors: Sequence[int], environment: Mapping[str, str]
) -> tuple[str, ...]:
    """Run CHECKS inside `command`, a prefix that makes a sandbox; returns those that fail, or why none ran."""
    script = "".join(
        f"if {test}; then echo held; else echo failed; fi 2>/dev/null\n" for test in CHECKS.values()
    )
    result = subprocess.run(
        [*command, "bash", "-c", script],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        pass_fds=descriptors,
        env=dict(environment),
        cwd="/",
    )
    answers = result.stdout.split()
    # a script that was cut short proves nothing
    if len(answers) != len(CHECKS):
        return (f"starts at all: {result.stderr.strip()}",)
    return tuple(name for name, answer in zip(CHECKS, answers, strict=True) if answer != "held")


def has_landlock() -> bool:
    """Whether the kernel's Landlock is new enough for the supervisor."""
    version = ctypes.CDLL(None).syscall(LANDLOCK_CREATE_RULESET, None, 0, LANDLOCK_VERSION)
    return bool(version >= LEAST_LANDLOCK)


def system_fingerprint() -> str:
    """SHA-256 of the release and package list of the /usr that sandboxes see."""
    digest = hashlib.sha256()
    for path in map(Path, PACKAGE_LISTS):
        if path.exists():
            digest.update(path.read_bytes())
    return digest.hexdigest()
