"""Commands of a local sandbox can't reach beyond it."""

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from clotho.errors import FileRefused, InvalidInput, IsolationUnavailable
from clotho.identifiers.ids import job_key
from clotho.sandbox.backend import JobState, SandboxSpec
from clotho.sandbox.local.backend import LocalBackend
from clotho.sandbox.local.enter import entering
from clotho.sandbox.local.isolation import system_fingerprint
from clotho.sandbox.local.users import RANGE
from tests.sandbox.conftest import SPECS, Fresh, needs_root
from tests.sandbox.pretender import make_pretender
from tests.sandbox.shell import Shell, control_groups
from tests.support import SHARED_LEASE


@pytest.fixture(scope="module")
async def shell(local: LocalBackend) -> AsyncIterator[Shell]:
    yield Shell(await local.create("isolation/lease/0", SPECS["local"].model_copy(update=SHARED_LEASE)))
    await local.destroy("isolation/lease/0")


@needs_root
async def test_report_of_this_host(local: LocalBackend) -> None:
    report = await local.probe()
    assert report.isolated, report.missing
    assert report.own_user


async def test_kernel_settings_and_system_are_read_only(shell: Shell) -> None:
    script = """
        for f in /proc/sys/kernel/{core_pattern,modprobe} /proc/sysrq-trigger /proc/sys/vm/panic_on_oom \
            /x /{usr,etc,dev,usr/local,home}/x /verifier
        do (echo x > $f) 2>/dev/null && echo "$f written"; done; echo end"""
    assert await shell.text(script) == "end"


async def test_workers_environment_and_files_are_absent(shell: Shell) -> None:
    seen = await shell.text("cat /proc/*/environ | tr '\\0' '\\n'; env")
    assert "SUPERVISOR" not in seen
    assert not {name for name in os.environ if name.startswith("PYTEST") and name in seen}
    assert await shell.text("ls /") == "bin\ndev\netc\nhome\nlib\nlib64\nproc\nrun\nsbin\ntmp\nusr\nvar\nwork"
    assert await shell.text(
        "ls /home; ls /usr/local; cat /etc/shadow /root/x 2>/dev/null; ls -d /sys 2>/dev/null"
    ) == ("agent")
    few = "while [ $(ps ax -o pid= | wc -l) -ge 8 ]; do sleep 0.1; done; echo few"
    assert await shell.text(few) == "few", "those of earlier commands may be ending"


async def test_mounts_name_neither_the_rollout_nor_its_user(shell: Shell) -> None:
    assert "isolation" not in await shell.text("cat /proc/self/mountinfo")


async def test_supervisor_is_out_of_reach(shell: Shell) -> None:
    denied = "{ ls /proc/1/fd /proc/1/root/ /proc/1/cwd/; cat /proc/1/environ /proc/1/maps; } 2>&1 | grep -c denied"
    assert await shell.text(denied) == "5"
    await shell.run("kill -9 1; kill -STOP 1; kill -TERM 1; echo 'lease 1' > /proc/1/fd/3")
    found = """grep -c control /proc/self/mountinfo
        find / -name alive -not -path '/proc/*' -not -path '/usr/*' 2>/dev/null | wc -l
        for d in /proc/[0-9]*/fd; do ls -l $d 2>/dev/null; done | grep -E 'alive|/q$|/c$' | wc -l"""
    assert await shell.text(found) == "0\n0\n0"


async def test_keepers_cannot_be_inspected(shell: Shell) -> None:
    assert await shell.text(
        "ls /proc/$PPID/fd 2>&1 | grep -c denied; cat /proc/$PPID/mem 2>&1 | grep -c denied"
    ) == ("1\n1")


async def test_results_of_a_verifier_are_not_forged(isolated: Shell, local: LocalBackend, lease: str) -> None:
    """A background loop of the agent's that writes wherever it finds a result."""
    evil = """(setsid sh -c 'while :; do
        for f in $(find / -name done -o -name out -o -name started 2>/dev/null | grep -v ^/proc | grep -v ^/usr); do
            echo "exited 0 1" > $f; done
        for f in /proc/[0-9]*/fd/*; do echo forged >> $f; done; done' >/dev/null 2>&1 &)"""
    await isolated.run(evil)
    verify = Shell(await local.open_verifier(lease, 0, {}))
    for _ in range(5):
        assert await verify.run("echo score=0.0; sleep 0.05; exit 1") == (JobState.EXITED, 1, b"score=0.0\n")


async def test_kill_all_ends_itself_only(isolated: Shell) -> None:
    result = await isolated.run("sleep 600 & kill -9 -1; echo x")
    assert result.state in (JobState.EXITED, JobState.KILLED)
    assert await isolated.text("echo alive") == "alive"


@needs_root
async def test_the_supervisor_keeps_few_rights_and_commands_none(isolated: Shell) -> None:
    """CHOWN, KILL, SETGID and SETUID, in the sandbox's user namespace; nothing that it runs could regain others."""
    shown = await isolated.text(
        "cat /proc/1/status /proc/$PPID/status /proc/self/status | grep ^Cap | cut -f2"
    )
    none, supervisors = "0" * 16, f"{0xE1:016x}"
    its_own = [none, supervisors, supervisors, none, none]
    assert shown.split() == [*its_own, *its_own, *[none] * 5]
    assert await isolated.text("cat /proc/sys/user/max_user_namespaces") == "0"


async def test_stop_all_does_not_stop_the_deadline(isolated: Shell) -> None:
    stops = "echo seen; { kill -STOP -1; kill -STOP 1; } 2>/dev/null; kill -STOP $$"
    for seconds in (0.5, 10.0, 90.0):
        result = await isolated.run(stops, timeout=seconds)
        if result.output:  # else it hadn't begun by then
            break
    assert result == (JobState.TIMEOUT, 124, b"seen\n")
    assert await isolated.text("echo alive") == "alive"


async def test_killers_of_everything_do_not_stop_later_commands(isolated: Shell) -> None:
    job = isolated.job("for i in $(seq 20); do kill -9 -1; done", session="killer")
    await isolated.sandbox.start(job)
    assert (await isolated.ended(job.key)).state in (JobState.EXITED, JobState.KILLED)
    assert await isolated.text("echo alive") == "alive"
    assert (await isolated.sandbox.read_file("/usr/bin/env", 10_000_000)).error is None


async def test_fork_bomb_is_bounded_and_dies_with_its_job(isolated: Shell) -> None:
    job = isolated.job("b() { b | b & }; b; sleep 30", timeout=1.0)
    await isolated.sandbox.start(job)
    await isolated.ended(job.key)
    await isolated.sandbox.kill(job.key)
    count = "while [ $(ls -d /proc/[0-9]* | wc -l) -gt 8 ]; do sleep 0.1; done; echo few"
    assert (await isolated.text(count)).endswith("few")


async def test_number_of_processes_is_bounded(fresh: Fresh) -> None:
    shell = await fresh(max_processes=20)
    assert 15 < int((await shell.text(f"python3 - <<'E'\n{FORKS}\nE")).splitlines()[-1]) < 20
    assert await shell.text("echo alive") == "alive"


FORKS = """
import os, signal
children = []
try:
    while len(children) < 40:
        pid = os.fork()
        if pid == 0: signal.pause()
        children.append(pid)
except BlockingIOError: pass
for pid in children:
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
print(len(children))
"""


@needs_root
async def test_disk_is_bounded_and_a_full_one_keeps_the_result(isolated: Shell) -> None:
    fill = "for d in /work ~ /tmp; do head -c 300M /dev/zero > $d/fill; done 2>/dev/null"
    result = await isolated.run(f"{fill}; du -smc /work ~ /tmp | tail -1; exit 9")
    assert (result.state, result.code) == (JobState.EXITED, 9)
    assert int(result.output.split()[0]) <= 210
    assert await isolated.text("cd /usr; export A=1; echo ok", name="full") == "ok"
    assert await isolated.text("echo $PWD $A", after=job_key("full")) == "/usr 1"
    with pytest.raises(FileRefused, match="no space"):
        await isolated.sandbox.write_file("more", bytes(1_000_000))


async def test_memory_of_file_systems_is_bounded(fresh: Fresh) -> None:
    shell = await fresh(disk_mb=400, memory_mb=1000)
    fill = "for d in /dev/shm /var/tmp /run /dev /; do head -c 300M /dev/zero > $d/fill; done 2>/dev/null"
    sizes = (await shell.text(f"{fill}; du -sm /dev/shm /var/tmp /run")).split()[0::2]
    assert [int(size) for size in sizes] == [64, 256, 64]


async def test_command_over_the_memory_bound_is_killed_and_the_sandbox_goes_on(
    isolated: Shell, local: LocalBackend
) -> None:
    if (await local.probe()).memory != "cgroup":
        pytest.skip("no control groups to write to")
    result = await isolated.run("python3 -c 'x = bytearray(700 << 20); print(len(x))'")
    assert (result.code, b"7340" in result.output) == (137, False)
    assert await isolated.text("echo alive") == "alive"


async def test_network_is_off(shell: Shell) -> None:
    script = r"""
import errno, socket
def tried(kind, address, data=b""):
    try:
        with socket.socket(socket.AF_INET, kind) as s:
            s.settimeout(2); s.connect(address); s.send(data) if data else None
        return "reached"
    except OSError as e:
        return errno.errorcode.get(e.errno, str(e))
print(tried(socket.SOCK_STREAM, ("169.254.169.254", 80)))
print(tried(socket.SOCK_STREAM, ("1.1.1.1", 443)))
print(tried(socket.SOCK_DGRAM, ("8.8.8.8", 53), b"x"))
try: print(socket.getaddrinfo("example.com", 80))
except OSError as e: print("no name")
"""
    assert (await shell.text(f"python3 - <<'E'\n{script}\nE")).split("\n") == [
        "ENETUNREACH",
        "ENETUNREACH",
        "ENETUNREACH",
        "no name",
    ]


async def test_services_of_the_host_are_out_of_reach(shell: Shell) -> None:
    server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        assert (await shell.run(f"exec 3<>/dev/tcp/127.0.0.1/{port}")).code != 0


async def test_system_calls_that_no_command_needs_are_refused(shell: Shell) -> None:
    script = r"""
import ctypes, errno, socket
libc = ctypes.CDLL(None, use_errno=True)
def call(number, *a):
    return errno.errorcode.get(ctypes.get_errno(), "made") if libc.syscall(number, *a) < 0 else "made"
print(call(272, 0x10000000), call(425, 8, 0), call(321, 0, 0, 0), call(250, 0, 0), call(298, 0, 0, 0, 0, 0))
for family in (socket.AF_VSOCK, socket.AF_ALG, socket.AF_PACKET):
    try: socket.socket(family, socket.SOCK_STREAM); print("socket")
    except OSError as e: print(errno.errorcode[e.errno])
socket.socketpair(); print("pair")
"""
    if os.uname().machine != "x86_64":
        pytest.skip("numbers of x86_64")
    assert (await shell.text(f"python3 - <<'E'\n{script}\nE")).split() == [
        *["EPERM"] * 5,
        *["EAFNOSUPPORT"] * 3,
        "pair",
    ]


async def test_user_namespaces_are_off(shell: Shell) -> None:
    assert await shell.text("unshare -Ur true 2>/dev/null || echo refused") == "refused"
    if os.uname().machine != "x86_64":
        pytest.skip("numbers of x86_64")
    clone = """
import ctypes, os
CLONE, NEW_USER, SIGCHLD = 56, 0x10000000, 17
child = ctypes.CDLL(None).syscall(CLONE, NEW_USER | SIGCHLD, 0, 0, 0, 0)
if child == 0: os._exit(0)
print("made" if child > 0 else "refused")"""
    assert await shell.text(f"python3 - <<'E'\n{clone}\nE") == "refused"


def test_the_same_system_has_the_same_fingerprint() -> None:
    assert len(system_fingerprint()) == 64
    assert system_fingerprint() == system_fingerprint()


@needs_root
async def test_users_of_two_sandboxes_differ(shell: Shell, isolated: Shell) -> None:
    assert await shell.text("id -u") != await isolated.text("id -u")
    assert await shell.text("whoami; echo ~; echo $HOME") == "agent\n/home/agent\n/home/agent"


async def test_refuses_without_isolation(folder: Path, lease: str) -> None:
    backend = LocalBackend(folder / "no-isolation", bubblewrap="not-installed")
    with pytest.raises(IsolationUnavailable, match="bubblewrap"):
        await backend.create(lease, SandboxSpec())
    assert not (await backend.probe()).isolated
    assert not await backend.leases()


async def test_refuses_a_bubblewrap_that_does_not_isolate(folder: Path, lease: str) -> None:
    """Trying is the proof, not the program's presence."""
    backend = LocalBackend(folder / "pretended", bubblewrap=str(make_pretender(folder)))
    with pytest.raises(IsolationUnavailable, match="network"):
        await backend.create(lease, SandboxSpec())


async def test_refuses_required_limits_that_it_cannot_enforce(
    folder: Path, lease: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("clotho.sandbox.local.cgroups.usable", lambda: ())
    backend = LocalBackend(folder / "no-limits")
    with pytest.raises(IsolationUnavailable, match="memory"):
        await backend.create(lease, SandboxSpec(limits="required"))


async def test_refuses_to_show_an_environments_source(folder: Path, lease: str) -> None:
    backend = LocalBackend(folder / "private")
    with pytest.raises(IsolationUnavailable, match="/usr/lib"):
        await backend.create(lease, SandboxSpec(), private=[Path("/usr/lib")])
    await backend.create(lease, SandboxSpec(), private=[Path("/usr/local/lib")])
    await backend.destroy(lease)


@needs_root
async def test_refuses_a_root_that_its_users_cannot_enter(folder: Path, lease: str) -> None:
    closed = folder / "closed"
    closed.mkdir(mode=0o700)
    with pytest.raises(InvalidInput, match="pass through"):
        await LocalBackend(closed / "root").create(lease, SandboxSpec())


async def test_usr_local_is_shown_when_asked(fresh: Fresh) -> None:
    shell = await fresh(expose_usr_local=True)
    assert (await shell.text("ls /usr/local | wc -l")) == str(len(list(Path("/usr/local").iterdir())))


@needs_root
async def test_destroy_removes_what_a_sandbox_left(lease: str, folder: Path) -> None:
    """Its user is no other sandbox's, which could be given it at once."""
    only = RANGE[-1 - os.getpid() % 1_000 :][:1]
    local = LocalBackend(folder / "sandboxes-left", users=only)
    shell = Shell(await local.create(lease, SPECS["local"]))
    user, name = await shell.text("id -u"), shell.control.path.parent.name
    assert int(user) in only
    deep = "for i in $(seq 300); do mkdir d; cd d; done"
    await shell.run(f"(setsid sleep 600 &); {deep}; chmod 000 /work; ln -s / ~/root")
    await local.destroy(lease)
    assert subprocess.run(["pgrep", "-u", user, "-r", "D,R,S,T"], capture_output=True).stdout == b""
    assert not list((folder / "sandboxes-left").glob(f"*/{name}"))
    assert name not in Path("/proc/mounts").read_text()
    assert not control_groups(name)


UNPRIVILEGED = """
import asyncio, sys
from pathlib import Path
from clotho.sandbox.backend import SandboxSpec
from clotho.sandbox.local.enter import entering
from clotho.sandbox.local.isolation import system_fingerprint
from clotho.sandbox.local.backend import LocalBackend
from tests.sandbox.shell import Shell
async def main():
    backend = LocalBackend(Path(sys.argv[1]))
    report = await backend.probe()
    assert report.isolated and not report.own_user, report
    shell = Shell(await backend.create("u/lease/0", SandboxSpec()))
    print(await shell.text("id -u; echo x > /work/f; cat /work/f; ls /; unshare -Ur true 2>/dev/null || echo no"))
    print((await shell.sandbox.read_file("f", 10)).content)
    verify = Shell(await backend.open_verifier("u/lease/0", 0, {"a": b"1"}))
    print(await verify.text("cat $CLOTHO_HIDDEN_FILES/a"))
    await backend.destroy("u/lease/0")
    print(list(Path(sys.argv[1], "sandboxes").iterdir()))
asyncio.run(main())
"""


@needs_root
def test_without_root(folder: Path) -> None:
    python = [*entering(54321), sys.executable, "-B", "-c"]
    if subprocess.run([*python, "import pydantic"], capture_output=True).returncode != 0:
        pytest.skip("this Python is for root only")
    root = folder / "unprivileged"
    root.mkdir()
    os.chown(root, 54321, 54321)
    ran = subprocess.run(
        [*python, UNPRIVILEGED, str(root)],
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 0, ran.stderr
    lines = ran.stdout.splitlines()
    assert lines[:2] == ["54321", "x"]
    assert lines[-4:] == ["no", "b'x\\n'", "1", "[]"]
