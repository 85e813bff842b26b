"""The system calls that local sandboxes may make: a classic BPF program for bubblewrap's --seccomp.

Namespaces and missing capabilities isolate; the filter covers the rest. The supervisor's children that move files
run as the commands' user, and so does the supervisor where the worker isn't root. The filter protects these, too:
no command changes another process' limits, priority or scheduling, or delays with a lease whoever opens a file.
"""

import platform
import struct
from collections.abc import Iterable, Iterator
from functools import cache
from typing import Literal, NamedTuple

from clotho.sandbox.supervised.syscalls import ALLOWED, NEWEST, Numbers

LOAD, JUMP, JUMP_EQUAL, JUMP_AT_LEAST, JUMP_ANY_BIT, RETURN = 0x20, 0x05, 0x15, 0x35, 0x45, 0x06
ALLOW, ERRNO = 0x7FFF_0000, 0x0005_0000
NUMBER, ARCHITECTURE, ARGUMENTS = 0, 4, 16
EPERM, ENOSYS, EAFNOSUPPORT = 1, 38, 97
AUDIT = {"x86_64": 0xC000_003E, "aarch64": 0xC000_00B7}

SOCKET_FAMILIES = (1, 2, 10, 16)
"""AF_UNIX, AF_INET, AF_INET6, AF_NETLINK."""
NAMESPACES = 0x7E02_0000
"""The flags of clone(2) that make a namespace."""
PERSONALITIES = (0, 0x8, 0x2_0000, 0x2_0008, 0xFFFF_FFFF)
"""Linux, 32 bits of it, and the question which it is: those that don't weaken the layout of memory."""
SET_LEASE, NOTIFY = 1024, 1026
PRIORITY_OF_PROCESS, IO_PRIORITY_OF_PROCESS, ITSELF = 0, 1, 0
SUPERVISOR = 1

Instruction = tuple[int, int, int, int]


class Check(NamedTuple):
    """A check of one argument. All checked arguments are 32 bits wide for the kernel, too, but for pointers."""

    argument: int
    test: Literal["one of", "none of", "no bit of", "null allows"]
    values: tuple[int, ...] = ()
    error: int = EPERM

    def code(self) -> Iterator[Instruction]:
        """Falls through where the check holds, and returns the error where it doesn't."""
        yield (LOAD, 0, 0, ARGUMENTS + 8 * self.argument)
        match self.test:
            case "one of" | "none of":
                for before, value in enumerate(self.values):
                    yield (JUMP_EQUAL, len(self.values) - before, 0, value)
                if self.test == "none of":
                    yield (JUMP, 0, 0, 1)
                yield (RETURN, 0, 0, ERRNO | self.error)
            case "no bit of":
                (bits,) = self.values
                yield from ((JUMP_ANY_BIT, 0, 1, bits), (RETURN, 0, 0, ERRNO | self.error))
            case "null allows":
                # a pointer is 64 bits, of which the filter compares 32 at a time: both halves must be 0
                yield (JUMP_EQUAL, 0, 3, 0)
                yield (LOAD, 0, 0, ARGUMENTS + 8 * self.argument + 4)
                yield from ((JUMP_EQUAL, 0, 1, 0), (RETURN, 0, 0, ALLOW))


class Checked(NamedTuple):
    """A system call that is allowed if its arguments pass."""

    numbers: Numbers
    checks: tuple[Check, ...]


_itself = Check(0, "one of", (ITSELF,))
CHECKED = {
    "clone": Checked(Numbers(56, 220), (Check(0, "no bit of", (NAMESPACES,)),)),
    "fcntl": Checked(Numbers(72, 25), (Check(1, "none of", (SET_LEASE, NOTIFY)),)),
    "ioprio_set": Checked(
        Numbers(251, 30), (Check(0, "one of", (IO_PRIORITY_OF_PROCESS,)), Check(1, "one of", (ITSELF,)))
    ),
    "personality": Checked(Numbers(135, 92), (Check(0, "one of", PERSONALITIES),)),
    # a null pointer only reads the limits, which may be anybody's
    "prlimit64": Checked(Numbers(302, 261), (Check(2, "null allows"), _itself)),
    "sched_setaffinity": Checked(Numbers(203, 122), (Check(0, "none of", (SUPERVISOR,)),)),
    "sched_setattr": Checked(Numbers(314, 274), (_itself,)),
    "sched_setparam": Checked(Numbers(142, 118), (_itself,)),
    "sched_setscheduler": Checked(Numbers(144, 119), (_itself,)),
    "setpriority": Checked(
        Numbers(141, 140), (Check(0, "one of", (PRIORITY_OF_PROCESS,)), Check(1, "one of", (ITSELF,)))
    ),
    "socket": Checked(Numbers(41, 198), (Check(0, "one of", SOCKET_FAMILIES, EAFNOSUPPORT),)),
    "socketpair": Checked(Numbers(53, 199), (Check(0, "one of", SOCKET_FAMILIES, EAFNOSUPPORT),)),
}
ABSENT = {"clone3": Numbers(435, 435)}
"""Calls with arguments that can't be checked, which the C library does without where the kernel lacks them."""


@cache
def program(machine: str = platform.machine()) -> bytes:
    """The filter in the kernel's format, an array of struct sock_filter. Raises KeyError for another machine."""
    audit = AUDIT[machine]
    code: list[Instruction] = [
        (LOAD, 0, 0, ARCHITECTURE),
        (JUMP_EQUAL, 1, 0, audit),
        (RETURN, 0, 0, ERRNO | ENOSYS),
        (LOAD, 0, 0, NUMBER),
        (JUMP_AT_LEAST, 0, 1, NEWEST + 1),  # those of x32, too
        (RETURN, 0, 0, ERRNO | ENOSYS),
    ]
    for numbers in ABSENT.values():
        code += [(JUMP_EQUAL, 0, 1, getattr(numbers, machine)), (RETURN, 0, 0, ERRNO | ENOSYS)]
    for numbers, checks in CHECKED.values():
        block = [*(each for check in checks for each in check.code()), (RETURN, 0, 0, ALLOW)]
        code += [(JUMP_EQUAL, 0, len(block), getattr(numbers, machine)), *block]
    for first, last in _ranges(getattr(numbers, machine) for numbers in ALLOWED.values()):
        code += [
            (JUMP_AT_LEAST, 2, 0, last + 1),
            (JUMP_AT_LEAST, 0, 1, first),
            (RETURN, 0, 0, ALLOW),
        ]
    code += [(RETURN, 0, 0, ERRNO | EPERM)]
    return b"".join(struct.pack("=HBBI", *instruction) for instruction in code)


def _ranges(numbers: Iterable[int | None]) -> list[tuple[int, int]]:
    """Numbers that follow on each other, as (first, last)."""
    ranges: list[tuple[int, int]] = []
    for number in sorted(number for number in numbers if number is not None):
        if ranges and ranges[-1][1] == number - 1:
            ranges[-1] = (ranges[-1][0], number)
        else:
            ranges.append((number, number))
    return ranges
