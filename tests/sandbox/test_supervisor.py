"""The program that is shipped, and its beginning; what it does is in the conformance tests."""

import json
import os
import shutil
import struct
import subprocess
from pathlib import Path

import pytest

from clotho.errors import IsolationUnavailable, SandboxLost
from clotho.identifiers.ids import job_key
from clotho.sandbox.backend import JobState
from clotho.sandbox.exhaustion import Bounds
from clotho.sandbox.supervised import launch
from clotho.sandbox.supervised.control import ControlDirectory
from clotho.sandbox.supervised.instance import SupervisedSandbox
from clotho.sandbox.supervised.interface import JOBS
from clotho.sandbox.supervised.launch import Launch, end, start
from clotho.sandbox.supervised.layout import Layout
from clotho.sandbox.supervisor import ARCHITECTURES, FOLDER, supervisor_path
from clotho.sandbox.supervisor.build import BUILT, digests
from tests.sandbox.shell import Shell
from tests.support import PATIENCE_SECONDS

ET_DYN, GNU_STACK, GNU_RELRO, EXECUTABLE = 3, 0x6474E551, 0x6474E552, 1


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A supervisor that is told to end isn't killed for taking its time."""
    monkeypatch.setattr(launch, "END_SECONDS", PATIENCE_SECONDS)


def test_shipped_programs_were_built_from_these_sources() -> None:
    """`make test-supervisor` builds them anew, which takes minutes."""
    assert json.loads((FOLDER / BUILT).read_text()) == digests()
    assert all(os.access(supervisor_path(architecture), os.X_OK) for architecture in ARCHITECTURES)


def test_supervisor_that_cannot_be_started_leaves_no_descriptor_open(tmp_path: Path) -> None:
    control = ControlDirectory(tmp_path / "control", None)
    control.create()
    wanted = Launch(["/not/installed"], {}, tmp_path, tmp_path / "log", 60, 0, 0, ())
    before = os.listdir("/proc/self/fd")
    with pytest.raises(FileNotFoundError):
        start(wanted, control)
    assert set(os.listdir("/proc/self/fd")) <= set(before), "what other tests left may be closed meanwhile"


def test_a_supervisor_that_ends_while_it_is_asked_is_a_lost_sandbox(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the opening of its queue and the writing: what a keeper of leases must survive."""
    control = ControlDirectory(tmp_path / "control", None)
    control.create()
    os.mkfifo(control.path / "q")
    reader = os.open(control.path / "q", os.O_RDONLY | os.O_NONBLOCK)
    write = os.write

    def after_its_end(descriptor: int, content: bytes) -> int:
        os.close(reader)
        return write(descriptor, content)

    monkeypatch.setattr(os, "write", after_its_end)
    with pytest.raises(SandboxLost, match="gone"):
        control.say("lease", "60")


def test_the_lease_of_a_destroyed_sandbox_is_lost(tmp_path: Path) -> None:
    with pytest.raises(SandboxLost, match="destroyed"):
        ControlDirectory(tmp_path / "never-made", None).set_deadline(60)


def test_other_machines_are_refused() -> None:
    with pytest.raises(IsolationUnavailable, match="riscv64"):
        supervisor_path("riscv64")
    assert supervisor_path("arm64") == supervisor_path("aarch64")


def test_one_supervisor_per_control_directory(tmp_path: Path) -> None:
    directory = os.open(tmp_path, os.O_RDONLY)
    ready, tell = os.pipe()

    def started() -> subprocess.Popen[bytes]:
        argv = [str(supervisor_path()), "serve", str(directory), str(tell), "600", "0", "0"]
        return subprocess.Popen(argv, pass_fds=(directory, tell), stderr=subprocess.DEVNULL)

    with started() as first:
        incarnation = os.read(ready, 64)
        with started() as second:
            assert second.wait(PATIENCE_SECONDS) != 0
        assert (tmp_path / "alive").read_bytes() == incarnation
        (tmp_path / "q").write_text("stop\n")
        assert first.wait(PATIENCE_SECONDS) == 0
    for descriptor in (directory, ready, tell):
        os.close(descriptor)


@pytest.mark.parametrize(
    "line",
    [
        b"\0",
        b"x\0",
        b"lease x",
        b"lease 99999999999999999999",
        b"lease -1",
        b"lease 9223372036854775807",
        b"x" * 9_000,
        b"x" * 8_191 + b"stop",
        b"x" * 16_384 + b"seal",
    ],
    ids=lambda line: f"{line[:12]!r} of {len(line)}",
)
async def test_a_line_that_is_no_request_costs_no_other(tmp_path: Path, line: bytes, patient: None) -> None:
    control = ControlDirectory(tmp_path / "control", None)
    control.create()
    started = Launch(
        [str(supervisor_path())], {"PATH": os.defpath}, tmp_path, tmp_path / "log", 600, 0, 0, ()
    )
    process, incarnation = start(started, control)
    layout = Layout(str(tmp_path), str(tmp_path), str(tmp_path), isolated=False, aliases={})
    shell = Shell(SupervisedSandbox(control, incarnation, layout, Bounds((), 0, None)))
    job = shell.job("exit 3")
    control.stage(JOBS, job.key, {"job": b"identity a\ninput none\n\nexit 3"})
    # At once, so that they are read together.
    (control.path / "q").write_bytes(line + f"\nrun {job.key}\n".encode())
    assert (await shell.ended(job.key)).code == 3
    end(control)
    assert process.wait(PATIENCE_SECONDS) == 0


@pytest.mark.skipif(shutil.which("dash") is None, reason="dash stands for the sh of small images")
async def test_image_without_bash(tmp_path: Path, patient: None) -> None:
    """Commands run in sh, and keep their directory and variables."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, target in {"sh": "dash", "cat": "cat", "ls": "ls"}.items():
        (programs / name).symlink_to(str(shutil.which(target)))
    control = ControlDirectory(tmp_path / "control", None)
    control.create()
    started = Launch(
        command=[str(supervisor_path())],
        environment={"PATH": str(programs)},
        folder=tmp_path,
        log=tmp_path / "log",
        lease_seconds=600,
        max_processes=0,
        max_file_bytes=0,
        inherited=(),
    )
    process, incarnation = start(started, control)
    layout = Layout(str(tmp_path), str(tmp_path), str(tmp_path), isolated=False, aliases={})
    shell = Shell(SupervisedSandbox(control, incarnation, layout, Bounds((), 0, None)))
    first = await shell.run("cd /usr; export A='x  y'; echo ${BASH_VERSION-sh}; exit 3", name="first")
    assert first == (JobState.EXITED, 3, b"sh\n")
    second = await shell.run("echo $PWD $A; ls /proc/self/fd", after=job_key("first"))
    assert second.output.split() == [b"/usr", b"x", b"y", b"0", b"1", b"2", b"3"]
    assert (await shell.run("echo $PWD", after=job_key("first"), workdir="bin")).output == b"/usr/bin\n"
    end(control)
    assert process.wait(PATIENCE_SECONDS) == 0


def test_needs_nothing_of_the_system() -> None:
    """Static: it runs in any image."""
    content = supervisor_path().read_bytes()
    assert b"ld-linux" not in content
    assert b"ld-musl" not in content
    assert len(content) < 150_000


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_the_program_has_no_fixed_addresses_and_no_writable_tables(architecture: str) -> None:
    """PIE, with its relocations read-only (RELRO) before the first instruction of ours, and no executable stack."""
    content = supervisor_path(architecture).read_bytes()
    (kind,) = struct.unpack_from("<H", content, 16)
    (headers,) = struct.unpack_from("<Q", content, 32)
    (count,) = struct.unpack_from("<H", content, 56)
    segments = dict(struct.unpack_from("<II", content, headers + 56 * each) for each in range(count))
    assert kind == ET_DYN
    assert GNU_RELRO in segments
    assert not segments[GNU_STACK] & EXECUTABLE
