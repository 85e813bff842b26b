"""What of a host its sandboxes and its other local users see, and what those can put in the place of ours."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from clotho.config import SandboxSettings
from clotho.errors import InvalidInput
from clotho.journal.folder import FilesystemStore
from clotho.sandbox.backend import SandboxSpec
from clotho.sandbox.local.backend import LocalBackend
from clotho.sandbox.local.enter import entering
from clotho.sandbox.supervised.launch import lock_holder
from tests.sandbox.conftest import needs_root
from tests.sandbox.shell import Shell

US, THEM = 54321, 54322
"""Users without any right here."""

LOOK = r"""
import os, subprocess, sys
for path in sys.stdin.read().split("\0"):
    attempts = {
        "listed": lambda: os.listdir(path),
        "read": lambda: os.open(path, os.O_RDONLY | os.O_NONBLOCK),
        "written": lambda: os.open(path, os.O_WRONLY | os.O_NONBLOCK),
        "seen": lambda: os.lstat(path),
        "run": lambda: subprocess.run([path], stdout=subprocess.DEVNULL),
    }
    for what, attempt in attempts.items():
        try: attempt()
        except OSError: continue
        print(what, path)
"""
"""Tried by another user on each path that is there, which it is told: it might guess."""


def seen_by_another(*folders: Path) -> list[str]:
    paths = [str(path) for folder in folders for path in below(folder)]
    assert len(paths) > 3
    looked = subprocess.run(
        [*entering(THEM), "/usr/bin/python3", "-c", LOOK],
        input="\0".join(paths),
        capture_output=True,
        text=True,
        check=True,
        cwd="/",
    )
    return looked.stdout.splitlines()


def below(folder: Path) -> Iterator[Path]:
    for parent, folders, files in os.walk(folder):
        yield from (Path(parent, name) for name in (*folders, *files))


@needs_root
@pytest.mark.attack(
    "neighbours", "another local user who looks into sandboxes, or runs setuid files from there"
)
async def test_other_users_see_nothing_of_a_sandbox(isolated: Shell, local: LocalBackend, lease: str) -> None:
    await isolated.run("chmod -R 777 /work ~; cp /usr/bin/env /work/setuid; chmod 6777 /work/setuid")
    await local.open_verifier(lease, 0, {"expected.txt": b"hidden", "check/run.sh": b"#!/bin/sh\n"})
    controls = isolated.control.path.parent
    files = controls.parent.parent / "sandboxes" / controls.name
    assert (files / "disk/work/setuid").exists()
    seen = seen_by_another(files, controls, Path("/run/clotho/users"))
    assert not seen, seen
    modes = {path.name: path.stat().st_mode & 0o777 for path in (*files.iterdir(), *controls.iterdir())}
    assert modes["sandbox.json"] == modes["disk.img"] == modes["control.img"] == 0o600
    assert modes["agent"] == 0o700


WITHOUT_ROOT = """
import asyncio, sys
from pathlib import Path
from clotho.sandbox.backend import SandboxSpec
from clotho.sandbox.local.backend import LocalBackend
from tests.sandbox.shell import Shell
async def main():
    backend = LocalBackend(Path(sys.argv[1]))
    shell = Shell(await backend.create("u/lease/0", SandboxSpec()))
    await shell.run("chmod -R 777 /work ~; cp /usr/bin/env /work/setuid; chmod 6777 /work/setuid")
    await backend.open_verifier("u/lease/0", 0, {"a": b"1"})
    print("made", flush=True)
    sys.stdin.read()
    await backend.destroy("u/lease/0")
asyncio.run(main())
"""


@needs_root
@pytest.mark.attack(
    "neighbours", "another local user who looks into sandboxes, or runs setuid files from there"
)
def test_other_users_see_nothing_of_a_sandbox_without_root(folder: Path) -> None:
    python = [*entering(US), sys.executable, "-B", "-c"]
    if subprocess.run([*python, "import pydantic"], capture_output=True).returncode != 0:
        pytest.skip("this Python is for root only")
    root = folder / "exposed"
    root.mkdir()
    os.chown(root, US, US)
    with subprocess.Popen(
        [*python, WITHOUT_ROOT, str(root)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as maker:
        assert maker.stdout is not None
        assert maker.stdout.readline() == "made\n"
        (sandbox,) = (root / "sandboxes").iterdir()
        assert (sandbox / "disk/work/setuid").stat().st_mode & 0o4000
        seen = seen_by_another(sandbox, root / "control")
        maker.communicate()
    assert not seen, seen
    assert maker.returncode == 0


@pytest.mark.attack("neighbours", "the journal read by another local user")
@needs_root
async def test_other_users_see_nothing_of_a_store(folder: Path) -> None:
    store = FilesystemStore(folder / "store")
    assert await store.create("runs/a/0", b"secret") and await store.create("runs/a/1", b"secret")
    seen = seen_by_another(folder / "store")
    assert not seen, seen
    modes = {path.stat().st_mode & 0o777 for path in below(folder / "store") if path.is_file()}
    assert modes == {0o600}


# ---- roots ----


@needs_root
@pytest.mark.attack("neighbours", "a folder for sandboxes that another local user has made first")
@pytest.mark.parametrize(
    "kind", ["its", "its parent is", "a link of", "open to all", "its parent is open to all"]
)
async def test_roots_of_others_are_refused(folder: Path, lease: str, kind: str) -> None:
    parent = folder / f"of others {kind}"
    root = parent / "root"
    root.mkdir(parents=True)
    match kind:
        case "its":
            os.chown(root, THEM, THEM)
        case "its parent is":
            os.chown(parent, THEM, THEM)
        case "a link of":
            (folder / "elsewhere").mkdir(exist_ok=True)
            root.rmdir()
            root.symlink_to(folder / "elsewhere")
            os.chown(root, THEM, THEM, follow_symlinks=False)
        case "open to all":
            root.chmod(0o777)
        case _:
            parent.chmod(0o777)
    with pytest.raises(InvalidInput, match="sandboxes in"):
        await LocalBackend(root).create(lease, SandboxSpec(disk_mb=16))


def test_each_user_has_a_root_of_its_own() -> None:
    assert str(os.getuid()) in SandboxSettings().root.name


# ---- the supervisor's program ----


@needs_root
@pytest.mark.attack("neighbours", "the supervisor's program swapped for another")
async def test_the_program_lies_on_no_disk_where_it_could_be_swapped(isolated: Shell) -> None:
    supervisor = lock_holder(isolated.control.alive_file)
    running = Path(f"/proc/{supervisor}/exe")
    root = isolated.control.path.parent.parent.parent
    copies = [
        path for path in below(root) if path.is_file() and path.stat().st_size == running.stat().st_size
    ]
    assert not copies
    attempts = (
        "for a in 'chmod 777' 'cp /bin/true' 'rm -f' 'mv -f /work'; do $a /.supervisor && echo done; done"
    )
    assert await isolated.text(f"({attempts}; : > /.supervisor) 2>/dev/null; echo end") == "end"


# ---- what commands see of the kernel ----

OF_THE_HOST = (
    "cmdline config.gz interrupts kallsyms kcore keys key-users kmsg latency_stats modules sched_debug "
    "softirqs timer_list diskstats partitions acpi asound driver scsi"
)


@pytest.mark.attack("sandbox", "what /proc tells of the machine beneath")
async def test_entries_of_proc_that_tell_of_the_host_are_empty(isolated: Shell) -> None:
    shown = f"cd /proc; for n in {OF_THE_HOST}; do cat $n 2>/dev/null; ls $n/ 2>/dev/null; done | head -c 200"
    assert await isolated.text(shown) == ""


async def test_what_programs_need_of_proc_is_there(isolated: Shell) -> None:
    assert await isolated.text(
        "nproc; free -m >/dev/null && ps ax >/dev/null && uptime >/dev/null && echo ok"
    )
    needed = "cat /proc/{cpuinfo,meminfo,stat,loadavg,self/status,version,mounts,filesystems} | wc -l"
    assert int(await isolated.text(needed)) > 50
