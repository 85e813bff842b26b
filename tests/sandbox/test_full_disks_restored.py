"""Disks that commands have filled, by whatever a file system counts: restored, and verified on."""

from pathlib import Path

import pytest

from clotho.sandbox.backend import SandboxSpec
from clotho.sandbox.checkpoints import NotTaken
from clotho.sandbox.local.backend import LocalBackend
from tests.sandbox.conftest import Fresh, needs_root
from tests.sandbox.copies import Copies
from tests.sandbox.verifying import looking

FULL = """cat > ~/fill.py <<'E'
import itertools, os
os.mkdir("many")
os.chdir("many")
try:
    for n in itertools.count():
        {fill}
except OSError as error:
    print(error.errno)
E
python3 ~/fill.py"""
FILL = {
    "links": "os.symlink('t' * 100, f'{n}')",
    "hard links": (
        "n % 50000 or (os.path.exists('one') and os.rename('one', f'one{n}'), open('one', 'w').close())\n"
        "        os.link('one', f'{n}' + 'n' * 200)"
    ),
    "folders": "os.mkdir(f'{n}')",
    "empty files": "os.close(os.open(f'{n}', os.O_CREAT))",
    "extended attributes": "f = open(f'{n}', 'w'); os.setxattr(f.fileno(), 'user.a', os.urandom(800))",
    "sparse files": "f = open(f'{n}', 'wb'); [os.pwrite(f.fileno(), b'x', at << 13) for at in range(2000)]",
    "bytes": "f = open(f'{n}', 'wb', 0); f.write(bytes(100_000)) < 100_000 and f.write(b'more')",
}


@pytest.mark.attack(
    "sandbox", "a disk full of links, attributes or sparse files, whose checkpoint could not be restored"
)
@needs_root
@pytest.mark.parametrize(
    "fill",
    [pytest.param(name, marks=pytest.mark.slow) if name == "hard links" else name for name in FILL],
)
async def test_a_disk_that_commands_filled_can_be_restored_and_verified(
    local: LocalBackend, fresh: Fresh, lease: str, tmp_path: Path, fill: str
) -> None:
    agent = await fresh(disk_mb=16)
    assert await agent.text(FULL.format(fill=FILL[fill])) == "28"
    copies = Copies(local, SandboxSpec(disk_mb=16), lease, tmp_path)
    again = await copies.copy(agent)
    try:
        assert await again.text("ls many | wc -l") == await agent.text("ls many | wc -l")
        # Removing entries alone frees nothing where the folder itself fills the disk: ext4 shrinks none.
        assert await again.text("rm -rf many; mkdir other; echo 1 > other/file; cat other/file") == "1"
        ran = await looking(local, lease, {}).terminal(
            "for n in $(seq 40); do echo $n > /work/$n || exit 1; done"
        )
        assert ran["exit_code"] == 0, ran
    finally:
        await copies.destroy()


@pytest.mark.attack("sandbox", "200,000 empty files, to be kept in a checkpoint")
@needs_root
@pytest.mark.slow
async def test_empty_files_cost_no_more_than_their_checkpoint(
    local: LocalBackend, fresh: Fresh, lease: str, tmp_path: Path
) -> None:
    agent = await fresh(disk_mb=20_000)
    assert await agent.text("mkdir many; cd many; seq 200000 | xargs touch; ls -f | wc -l") == "200002"
    taken = await agent.sandbox.checkpoint(tmp_path / "blob", max_bytes=64 << 20)
    assert isinstance(taken, NotTaken), "each has a header of 512 bytes in the archive"
    assert await agent.text("echo here") == "here"
    ran = await looking(local, lease, {}).terminal("ls -f /work/many | wc -l; echo 1 > /work/file")
    assert (ran["exit_code"], ran["output"].strip()) == (0, "200002")
