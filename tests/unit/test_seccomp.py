"""The filter of system calls, run as the kernel would; the numbers are those of the kernel's headers."""

import importlib.util
import re
import struct
from pathlib import Path

import pytest

from clotho.sandbox.supervised.seccomp import ABSENT, AUDIT, CHECKED, program
from clotho.sandbox.supervised.syscalls import ALLOWED, NEWEST

HEADERS = {"x86_64": "x86-linux-any", "aarch64": "aarch64-linux-any"}
ALLOW, EPERM, ENOSYS, EAFNOSUPPORT = 0x7FFF_0000, 0x5_0001, 0x5_0026, 0x5_0061
ANOTHER = 4242


def numbers(machine: str) -> dict[str, int]:
    compiler = importlib.util.find_spec("ziglang")
    assert compiler is not None and compiler.origin is not None
    includes = Path(compiler.origin).parent / "lib/libc/include"
    header = (includes / HEADERS[machine] / "asm/unistd_64.h").read_text()
    return {name: int(number) for name, number in re.findall(r"#define __NR(?:3264)?_(\w+)\s+(\d+)", header)}


def verdict(machine: str, number: int, *arguments: int, audit: int | None = None) -> int:
    """What the filter answers to one system call."""
    padded = (*arguments, 0, 0, 0, 0, 0, 0)[:6]
    call = struct.pack("=IIQ6Q", number, AUDIT[machine] if audit is None else audit, 0, *padded)
    code = list(struct.iter_unpack("=HBBI", program(machine)))
    at, value = 0, 0
    while True:
        kind, if_true, if_false, k = code[at]
        at += 1
        match kind:
            case 0x20:
                (value,) = struct.unpack_from("=I", call, k)
            case 0x05:
                at += k
            case 0x15 | 0x35 | 0x45:
                holds = {0x15: value == k, 0x35: value >= k, 0x45: bool(value & k)}[kind]
                at += if_true if holds else if_false
            case 0x06:
                return int(k)


@pytest.mark.parametrize("machine", HEADERS)
def test_numbers_are_those_of_the_kernels_headers(machine: str) -> None:
    known = numbers(machine)
    listed = {**ALLOWED, **ABSENT, **{name: each.numbers for name, each in CHECKED.items()}}
    assert {name: getattr(of, machine) for name, of in listed.items()} == {
        name: known.get(name) for name in listed
    }
    assert max(known.values()) <= NEWEST


@pytest.mark.parametrize("machine", HEADERS)
def test_what_is_not_listed_is_refused(machine: str) -> None:
    known = numbers(machine)
    for name, number in known.items():
        if name in ALLOWED:
            assert verdict(machine, number) == ALLOW, name
        elif name not in CHECKED and name not in ABSENT:
            assert verdict(machine, number) == EPERM, name
    assert verdict(machine, known["clone3"]) == ENOSYS
    assert verdict(machine, NEWEST + 1) == verdict(machine, 0x4000_0000) == ENOSYS
    assert verdict(machine, known["read"], audit=0x4000_0003) == ENOSYS, "another machine's calls"


@pytest.mark.parametrize("machine", HEADERS)
def test_arguments(machine: str) -> None:
    def of(name: str, *arguments: int) -> int:
        return verdict(machine, numbers(machine)[name], *arguments)

    assert of("clone", 17) == of("clone", 0x3D0F00) == ALLOW
    assert {of("clone", 17 | 1 << bit) for bit in (17, 25, 26, 27, 28, 29, 30)} == {EPERM}
    assert of("socket", 1) == of("socketpair", 1) == of("socket", 16) == ALLOW
    assert of("socket", 17) == of("socket", 38) == of("socketpair", 40) == EAFNOSUPPORT
    assert of("fcntl", 3, 1) == ALLOW
    assert of("fcntl", 3, 1024) == of("fcntl", 3, 1026) == of("fcntl", 3, 1 << 32 | 1024) == EPERM
    assert of("prlimit64", 0, 7, ANOTHER) == of("prlimit64", ANOTHER, 7, 0) == ALLOW
    assert of("prlimit64", 1, 7, 64) == of("prlimit64", ANOTHER, 7, 1 << 32) == EPERM
    assert of("setpriority", 0, 0, 5) == of("ioprio_set", 1, 0) == ALLOW
    assert of("setpriority", 0, 1) == of("setpriority", 1, 0) == of("setpriority", 2, 0) == EPERM
    assert of("ioprio_set", 1, 1) == of("ioprio_set", 3, 0) == EPERM
    assert of("personality", 0xFFFF_FFFF) == ALLOW != of("personality", 0x004_0000)
    for name in ("sched_setattr", "sched_setparam", "sched_setscheduler"):
        assert of(name, 0) == ALLOW and of(name, 1) == of(name, ANOTHER) == EPERM
    assert of("sched_setaffinity", ANOTHER) == ALLOW and of("sched_setaffinity", 1) == EPERM
