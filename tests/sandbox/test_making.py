"""The making of sandboxes: disks from a template, processes by one program, folders under a root."""

import shutil
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from clotho.errors import InvalidInput
from clotho.sandbox.backend import SandboxSpec
from clotho.sandbox.local import disk, mounts
from clotho.sandbox.local.backend import LocalBackend
from clotho.sandbox.local.enter import entering
from clotho.sandbox.local.folders import SandboxFolder
from tests.sandbox.conftest import needs_root
from tests.sandbox.shell import Shell
from tests.support import eventually

USER = 2_050_300
SPEC = SandboxSpec(disk_mb=64)


@pytest.fixture
def made(tmp_path: Path) -> Iterator[list[Path]]:
    """Mount points of two disks of one size, the first of which made the template."""
    disks = [tmp_path / "first", tmp_path / "second"]
    for mount_point in disks:
        mount_point.mkdir()
        disk.allot(mount_point.with_suffix(".img"), 64)
        disk.make_in(mount_point.with_suffix(".img"), mount_point, reserved=True)
    yield disks
    for mount_point in disks:
        disk.remove(mount_point.with_suffix(".img"), mount_point)


async def is_whole(image: Path) -> bool:
    return subprocess.run(["e2fsck", "-f", "-n", str(image)], capture_output=True).returncode == 0


@needs_root
def test_disks_are_mounted_by_many_at_once(tmp_path: Path) -> None:
    """Each takes a free device, and none the one that another is about to take."""

    def mounted_and_removed(number: int) -> None:
        folder, image = tmp_path / str(number), tmp_path / f"{number}.img"
        folder.mkdir()
        disk.allot(image, 4)
        try:
            disk.make_in(image, folder)
        finally:
            disk.remove(image, folder)

    with ThreadPoolExecutor(32) as threads:
        list(threads.map(mounted_and_removed, range(200)))


@needs_root
def test_disks_of_one_template_share_nothing(made: list[Path]) -> None:
    first, second = made
    (first / "file").write_text("1")
    (second / "file").write_text("2")
    assert (first / "file").read_text() == "1"
    assert first.stat().st_dev != second.stat().st_dev


@needs_root
async def test_disks_are_whole_sparse_and_have_a_reserve(made: list[Path]) -> None:
    for mount_point in made:
        image = mount_point.with_suffix(".img")
        assert image.stat().st_mode & 0o777 == 0o600
        assert image.stat().st_blocks * 512 < 1 << 20
        reserve = mount_point / disk.RESERVE
        assert reserve.stat().st_mode & 0o777 == 0o700
        assert len(list(reserve.iterdir())) == disk.RESERVED_FILES
        mounts.unmount(mount_point)
        await eventually(partial(is_whole, image), "an unmounted image without a fault")


@needs_root
def test_a_disk_that_is_mounted_elsewhere_is_never_on_two_devices(made: list[Path]) -> None:
    again = made[0].with_name("again")
    again.mkdir()
    disk.mount(made[0].with_suffix(".img"), again)
    try:
        assert again.stat().st_dev == made[0].stat().st_dev
    finally:
        mounts.unmount(again)


@needs_root
def test_what_enters_has_no_rights_and_gains_none() -> None:
    shown = "id -u; id -g; id -G; nice; grep -E '^(CapEff|CapPrm|NoNewPrivs)' /proc/self/status"
    ran = subprocess.run(
        [*entering(USER, niceness=5), "sh", "-c", shown], capture_output=True, text=True, check=True
    )
    none = "0" * 16
    assert ran.stdout.split() == [
        *[str(USER)] * 3,
        "5",
        *("CapPrm:", none, "CapEff:", none, "NoNewPrivs:", "1"),
    ]


@needs_root
@pytest.mark.parametrize("user", ["0", "-1", "x", "", "4294967295", "99999999999"])
def test_no_other_user_is_entered(user: str) -> None:
    command = entering(USER)
    command[command.index(str(USER))] = user
    assert subprocess.run([*command, "id"], capture_output=True).stdout == b""


def test_nothing_runs_outside_of_its_control_groups(tmp_path: Path) -> None:
    ran = subprocess.run([*entering(None, groups=[tmp_path]), "echo", "ran"], capture_output=True, text=True)
    assert (ran.returncode, ran.stdout) == (126, "")
    assert f"{tmp_path}/cgroup.procs: No such file" in ran.stderr


async def test_a_root_that_was_changed_is_looked_at_again(folder: Path) -> None:
    root = folder / "changed-root"
    backend = LocalBackend(root, bubblewrap="not-installed")
    await backend.destroy("none")
    root.chmod(0o777)
    with pytest.raises(InvalidInput, match="everybody may change"):
        await backend.destroy("none")
    root.chmod(0o755)
    (root / "sandboxes").chmod(0o777)
    await backend.destroy("none")
    assert [path.stat().st_mode & 0o777 for path in (root, root / "sandboxes")] == [0o711, 0o711]
    shutil.rmtree(root)
    await backend.destroy("none")
    assert (root / "locks").stat().st_mode & 0o777 == 0o700


@needs_root
async def test_a_sandbox_begins_without_the_mounts_of_others(folder: Path, tmp_path: Path) -> None:
    """What it costs would grow with the number of those that are alive."""
    seen, bubblewrap = folder / "mounts-seen", folder / "bubblewrap"
    seen.touch()
    seen.chmod(0o666)
    bubblewrap.write_text(f'#!/bin/sh\ncat /proc/self/mountinfo > {seen}\nexec bwrap "$@"\n')
    bubblewrap.chmod(0o755)
    before = LocalBackend(folder / "made-before")
    await before.create("before/r0/lease/0", SPEC)
    among = LocalBackend(folder / "made-among", bubblewrap=str(bubblewrap))
    for number in range(2):
        await among.create(f"among/r{number}/lease/0", SPEC)
    own = SandboxFolder.of_lease(folder / "made-among", "among/r1/lease/0").disk
    disks = [line.split()[4] for line in seen.read_text().splitlines() if line.split()[4].endswith("/disk")]
    assert disks == [str(own)]
    for number in range(2):
        await among.destroy(f"among/r{number}/lease/0")
    await before.destroy("before/r0/lease/0")
    assert str(folder / "made-") not in Path("/proc/self/mountinfo").read_text()


@needs_root
async def test_a_worker_keeps_no_disk_of_anothers_sandbox(folder: Path) -> None:
    """Its device would stay, and its room on the host's disk."""
    first, second = LocalBackend(folder / "of-one-worker"), LocalBackend(folder / "of-another")
    await first.create("first/r0/lease/0", SPEC)
    await second.create("second/r0/lease/0", SPEC)
    await first.destroy("first/r0/lease/0")

    async def is_free() -> bool:
        devices = subprocess.run(["losetup", "-l"], capture_output=True, text=True, check=True)
        return str(folder / "of-one-worker") not in devices.stdout

    await eventually(is_free, "a device that is free again")
    await second.destroy("second/r0/lease/0")


@needs_root
async def test_sandboxes_where_a_disk_was_mounted_later(folder: Path) -> None:
    place = folder / "mounted-later"
    place.mkdir()
    backend = LocalBackend(place / "sandboxes")
    await backend.create("first/r0/lease/0", SPEC)
    await backend.destroy("first/r0/lease/0")
    subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=755", "none", place], check=True)
    try:
        made = Shell(await backend.create("later/r0/lease/0", SPEC))
        assert await made.text("echo here") == "here"
        await backend.destroy("later/r0/lease/0")
    finally:
        subprocess.run(["umount", "--lazy", place], check=True)
