"""The system calls that local sandboxes are refused: a classic BPF program for bubblewrap's --seccomp.

Namespaces and the missing capabilities carry the isolation; this takes away what they don't cover: sockets of
the machine beneath (vsock), kernel parts with a record of escapes that no command needs, and the keyring.
"""

import platform
import struct
from typing import NamedTuple

LOAD, JUMP_EQUAL, JUMP_AT_LEAST, RETURN = 0x20, 0x15, 0x35, 0x06
ALLOW, ERRNO = 0x7FFF_0000, 0x0005_0000
NUMBER, ARCHITECTURE, FIRST_ARGUMENT = 0, 4, 16
EPERM, ENOSYS, EAFNOSUPPORT = 1, 38, 97
SOCKET_FAMILIES = (1, 2, 10, 16)
"""AF_UNIX, AF_INET, AF_INET6, AF_NETLINK."""
X32 = 0x4000_0000

REFUSED = {
    # name: number on x86_64, number on aarch64
    "acct": (163, 89),
    "add_key": (248, 217),
    "bpf": (321, 280),
    "delete_module": (176, 106),
    "fanotify_init": (300, 262),
    "finit_module": (313, 273),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fsopen": (430, 430),
    "init_module": (175, 105),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "io_uring_setup": (425, 425),
    "kexec_file_load": (320, 294),
    "kexec_load": (246, 104),
    "keyctl": (250, 219),
    "mount": (165, 40),
    "mount_setattr": (442, 442),
    "move_mount": (429, 429),
    "open_by_handle_at": (304, 265),
    "open_tree": (428, 428),
    "perf_event_open": (298, 241),
    "pivot_root": (155, 41),
    "quotactl": (179, 60),
    "quotactl_fd": (443, 443),
    "reboot": (169, 142),
    "request_key": (249, 218),
    "setns": (308, 268),
    "swapoff": (168, 225),
    "swapon": (167, 224),
    "syslog": (103, 116),
    "umount2": (166, 39),
    "unshare": (272, 97),
    "userfaultfd": (323, 282),
    "vhangup": (153, 58),
}


class Machine(NamedTuple):
    audit: int
    column: int
    socket: int
    socketpair: int


MACHINES = {"x86_64": Machine(0xC000_003E, 0, 41, 53), "aarch64": Machine(0xC000_00B7, 1, 198, 199)}


def program(machine: str = platform.machine()) -> bytes:
    """The filter in the kernel's format, an array of struct sock_filter. Raises KeyError for another machine."""
    here = MACHINES[machine]
    refused = [numbers[here.column] for numbers in REFUSED.values()]
    code = [
        (LOAD, 0, 0, ARCHITECTURE),
        (JUMP_EQUAL, 1, 0, here.audit),
        (RETURN, 0, 0, ERRNO | ENOSYS),
        (LOAD, 0, 0, NUMBER),
        (JUMP_AT_LEAST, 0, 1, X32),
        (RETURN, 0, 0, ERRNO | ENOSYS),
    ]
    for number in refused:
        code += [(JUMP_EQUAL, 0, 1, number), (RETURN, 0, 0, ERRNO | EPERM)]
    code += [(JUMP_EQUAL, 1, 0, here.socket), (JUMP_EQUAL, 0, len(SOCKET_FAMILIES) + 2, here.socketpair)]
    code += [(LOAD, 0, 0, FIRST_ARGUMENT)]
    for index, family in enumerate(SOCKET_FAMILIES):
        code += [(JUMP_EQUAL, len(SOCKET_FAMILIES) - index, 0, family)]
    code += [(RETURN, 0, 0, ERRNO | EAFNOSUPPORT), (RETURN, 0, 0, ALLOW)]
    return b"".join(struct.pack("=HBBI", *instruction) for instruction in code)
