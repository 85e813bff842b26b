"""What commands try on their supervisor and its children: PID 1, keepers, transfers."""

import asyncio
import os
import time

import pytest

from clotho.sandbox.backend import JobState
from tests.sandbox.conftest import needs_root
from tests.sandbox.shell import Shell

pytestmark = pytest.mark.skipif(os.uname().machine != "x86_64", reason="the attacks have numbers of x86_64")

CALL = """
import ctypes, errno, os, signal, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
def call(number, *a):
    return errno.errorcode.get(ctypes.get_errno(), "?") if libc.syscall(number, *a) < 0 else "done"
"""
PRLIMIT, SET_SCHEDULER, SET_PARAM, SET_PRIORITY, SET_IO_PRIORITY, SET_ATTR = 302, 144, 142, 141, 251, 314
FILE_LEASE, SIGNAL_FOR_FILE, NOTIFY = 1024, 10, 1026


def python(text: str) -> str:
    return f"python3 - <<'E'\n{CALL}\n{text}\nE"


BEFORE_A_LEASE_ENDS = 30.0
"""The kernel itself ends a lease on a file after 45 s."""


async def still_serves(shell: Shell) -> None:
    """Commands, files and sessions, promptly."""
    async with asyncio.timeout(BEFORE_A_LEASE_ENDS):
        assert await shell.text("echo alive") == "alive"
        assert (await shell.sandbox.read_file("/usr/bin/env", 10_000_000)).error is None
        await shell.sandbox.write_file("written", b"x")


@pytest.mark.attack("sandbox", "limits of the supervisor lowered with prlimit")
@pytest.mark.parametrize("limit", ["CPU", "NOFILE", "NPROC", "AS", "FSIZE"])
async def test_limits_of_the_supervisor(isolated: Shell, limit: str) -> None:
    attack = f"""
import resource
none = struct.pack("QQ", 0, 0)
print(call({PRLIMIT}, 1, resource.RLIMIT_{limit}, none, None))
print(call({PRLIMIT}, os.getppid(), resource.RLIMIT_{limit}, none, None))"""
    assert await isolated.text(python(attack)) == "EPERM\nEPERM"
    await still_serves(isolated)


async def test_limits_of_its_own_remain_a_commands_business(isolated: Shell) -> None:
    own = """
from resource import RLIMIT_NOFILE, getrlimit, prlimit, setrlimit
setrlimit(RLIMIT_NOFILE, (50, 60))
print(getrlimit(RLIMIT_NOFILE), prlimit(os.getpid(), RLIMIT_NOFILE))"""
    assert await isolated.text(python(own)) == "(50, 60) (50, 60)"
    assert (
        await isolated.text("ulimit -n 40; ulimit -n; nice -n 3 nice; chrt -b 0 echo batch") == "40\n3\nbatch"
    )


@pytest.mark.attack("sandbox", "the supervisor's priority and scheduling class")
async def test_priority_of_the_supervisor(isolated: Shell) -> None:
    attack = f"""
idle = struct.pack("i", 0)
attributes = struct.pack("IIQiIQQQ", 48, 5, 0, 19, 0, 0, 0, 0)
print(call({SET_PRIORITY}, 0, 1, 19), call({SET_PRIORITY}, 1, 1, 19), call({SET_PRIORITY}, 2, 0, 19))
print(call({SET_SCHEDULER}, 1, 5, idle), call({SET_PARAM}, 1, idle), call({SET_ATTR}, 1, attributes, 0))
print(call({SET_IO_PRIORITY}, 1, 1, 3 << 13), call({SET_IO_PRIORITY}, 3, os.getuid(), 3 << 13))
print(call({SET_PRIORITY}, 0, os.getppid(), 19), call({SET_SCHEDULER}, os.getppid(), 5, idle))
print(call(203, 1, 8, struct.pack("Q", 1)))"""
    assert set((await isolated.text(python(attack))).split()) == {"EPERM"}
    assert await isolated.text("ps -o ni=,cls= -p 1") == await isolated.text("ps -o ni=,cls= -p $PPID")


FORGED = {
    "rt_sigqueueinfo": """
info = struct.pack("iiiIII", signal.SIGTERM, 0, -1, 0, 0, 0) + bytes(104)
print(call(129, 1, signal.SIGTERM, info))""",
    "pidfd_send_signal": """
info = struct.pack("iiiIII", signal.SIGTERM, 0, -1, 0, 0, 0) + bytes(104)
print(call(424, os.open("/proc/1", os.O_RDONLY), signal.SIGTERM, info, 0))""",
    "F_SETSIG": """
import fcntl
r, w = os.pipe()
fcntl.fcntl(r, 10, signal.SIGTERM)
fcntl.fcntl(r, fcntl.F_SETOWN, 1)
fcntl.fcntl(r, fcntl.F_SETFL, os.O_ASYNC)
os.write(w, b"x")""",
    "tgkill without room for its origin": """
import resource
signal.pthread_sigmask(signal.SIG_BLOCK, [40])
info = struct.pack("iiiIII", 40, 0, -1, 0, 0, 0) + bytes(104)
while call(129, os.getpid(), 40, info) == "done": pass
print(call(234, 1, 1, signal.SIGTERM))""",
    "SIGCHLD without end": """
import time
if os.fork() == 0:
    os.setsid()
    end = time.monotonic() + 3
    while time.monotonic() < end: os.kill(1, signal.SIGCHLD)
    os._exit(0)""",
}


@pytest.mark.attack("sandbox", "signals to the supervisor that seem to come from the host")
@pytest.mark.parametrize("form", FORGED)
async def test_forged_signals(isolated: Shell, form: str) -> None:
    await isolated.run(python(FORGED[form]), timeout=20)
    await still_serves(isolated)


@pytest.mark.attack("sandbox", "leases and notices on the files of a command's result")
async def test_leases_on_files_of_the_result(isolated: Shell) -> None:
    """The host, and the supervisor, would wait for lease-break-time: 45 s."""
    attack = f"""
import fcntl, time
def tried(fd, command, argument):
    try:
        fcntl.fcntl(fd, command, argument); return "done"
    except OSError as e: return errno.errorcode[e.errno]
out = os.open("/proc/self/fd/1", os.O_RDONLY)
fresh = os.open("own", os.O_RDONLY | os.O_CREAT)
print(tried(out, {FILE_LEASE}, 1), tried(1, {FILE_LEASE}, 1), tried(fresh, {FILE_LEASE}, 0))
print(tried(os.open(".", os.O_RDONLY), {NOTIFY}, 2))
sys.stdout.flush()
if os.fork() == 0:
    os.setsid(); time.sleep(600)"""
    began = time.monotonic()
    job = isolated.job(python(attack))
    await isolated.sandbox.start(job)
    assert (await isolated.ended(job.key)).output.decode().split() == ["EPERM"] * 4
    await still_serves(isolated)
    assert time.monotonic() - began < BEFORE_A_LEASE_ENDS


@pytest.mark.attack("sandbox", "a lease on a file that the host is to read")
async def test_lease_on_a_file_of_the_workspace(isolated: Shell) -> None:
    attack = f"""
import fcntl, time
held = os.open("held", os.O_WRONLY | os.O_CREAT)
os.write(held, b"content")
if os.fork() == 0:
    os.setsid()
    for signal in (1, 29): __import__("signal").signal(signal, lambda *a: None)
    try: fcntl.fcntl(held, {FILE_LEASE}, 1)
    except OSError: pass
    time.sleep(600)"""
    await isolated.run(python(attack))
    async with asyncio.timeout(BEFORE_A_LEASE_ENDS):
        assert (await isolated.sandbox.read_file("held", 100)).content == b"content"


@pytest.mark.attack("sandbox", "stopping whatever moves files for the host")
@pytest.mark.parametrize("signal", ["STOP", "KILL"])
async def test_transfers_that_are_stopped_or_killed(isolated: Shell, signal: str) -> None:
    attack = f"""
import time
os.setsid()
print("begun", flush=True)
end = time.monotonic() + 600
while time.monotonic() < end:
    for pid in os.listdir("/proc"):
        if pid.isdigit() and pid not in ("1", str(os.getpid())):
            try: os.kill(int(pid), signal.SIG{signal})
            except OSError: pass"""
    job = isolated.job(python(attack), session="attack")
    await isolated.sandbox.start(job)
    await isolated.output_contains(job.key, b"begun")
    async with asyncio.timeout(120):
        for _ in range(5):
            assert (await isolated.sandbox.read_file("/usr/bin/env", 10_000_000)).error is None
    await isolated.sandbox.kill(job.key)


@pytest.mark.attack("sandbox", "a keeper stopped before it can tell of its command's end")
async def test_a_stopped_keeper(isolated: Shell) -> None:
    ended = await isolated.run("kill -STOP $PPID 2>&1 | tail -c 0; echo told; exit 4", timeout=60)
    assert ended == (JobState.EXITED, 4, b"told\n")


@needs_root
@pytest.mark.attack("sandbox", "signals to the supervisor and to a command's keeper")
async def test_signals_to_the_supervisors_user(isolated: Shell) -> None:
    attack = """
print(os.stat("/proc/1").st_uid == os.stat(f"/proc/{os.getppid()}").st_uid != os.getuid())
for each in (1, os.getppid()):
    for number in (0, signal.SIGCONT, signal.SIGSTOP, signal.SIGKILL):
        try: os.kill(each, number)
        except PermissionError: print("refused")"""
    await isolated.sandbox.write_file("attack", f"{CALL}{attack}".encode())
    assert await isolated.text("exec python3 attack") == "\n".join(["True"] + ["refused"] * 8)
    await still_serves(isolated)


@needs_root
@pytest.mark.attack("sandbox", "the mode, owner and lease of the supervisor's files that a command has open")
async def test_files_of_the_supervisor_that_a_command_has_open(isolated: Shell) -> None:
    attack = f"""
for what in (lambda: os.fchmod(1, 0), lambda: os.fchown(1, os.getuid(), -1), lambda: os.fchmod(0, 0)):
    try: what()
    except PermissionError: print("refused")
print(call(72, 1, {FILE_LEASE}, 1), open("/proc/self/fd/1", "ab").write(b""))"""
    ended = await isolated.run("exec python3 /dev/stdin", stdin=f"{CALL}{attack}".encode())
    assert ended.output.decode().split("\n") == ["refused", "refused", "refused", "EPERM 0", ""]


@pytest.mark.attack("sandbox", "the supervisor's entries in /proc")
async def test_entries_of_the_supervisor_cannot_be_opened_for_writing(isolated: Shell) -> None:
    attack = """
for folder, _, names in os.walk("/proc/1"):
    for name in names:
        path = os.path.join(folder, name)
        try: os.write(os.open(path, os.O_WRONLY | os.O_NONBLOCK), b"0")
        except OSError: continue
        print("written", path)
print("end")"""
    assert await isolated.text(python(attack)) == "end"
    await still_serves(isolated)


@pytest.mark.attack("sandbox", "the supervisor's memory and descriptors")
async def test_memory_of_the_supervisor(isolated: Shell) -> None:
    attack = """
vector = struct.pack("PN", 4096, 8)
print(call(101, 16, 1, 0, 0), call(101, 0x4206, 1, 0, 0))  # PTRACE_ATTACH, PTRACE_SEIZE
print(call(310, 1, vector, 1, vector, 1, 0), call(311, 1, vector, 1, vector, 1, 0))
one = libc.syscall(434, 1, 0)
print(call(438, one, 3, 0), call(440, one, vector, 1, 4, 0), call(448, one, 0))
print(call(312, 1, os.getpid(), 0, 0, 0), call(279, 1, 0, 0, 0, 0, 0), call(256, 1, 0, 0, 0))"""
    refused = set((await isolated.text(python(attack))).split())
    assert refused <= {"EPERM", "ESRCH", "EINVAL", "EBADF"} and "done" not in refused
    await still_serves(isolated)
