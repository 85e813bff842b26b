"""What commands could write to if a mount of their view were other than it was made."""

import subprocess

import pytest

from clotho.sandbox.local.backend import LocalBackend
from clotho.sandbox.supervised.launch import lock_holder
from tests.sandbox.conftest import needs_root
from tests.sandbox.shell import Shell


@needs_root
@pytest.mark.attack("sandbox", "a file system that is mounted, or made writable, after the sandbox has begun")
async def test_a_mount_that_is_new_is_not_written_to(isolated: Shell, local: LocalBackend) -> None:
    """The mount allows it, and its mode: it is Landlock that refuses."""
    if not (await local.probe()).landlock:
        pytest.skip("this kernel has no Landlock that knows truncation")
    supervisor = lock_holder(isolated.control.alive_file)
    mount = ("mount", "-t", "tmpfs", "-o", "mode=1777", "none", "/var")
    subprocess.run(["nsenter", "-t", str(supervisor), "-m", *mount], check=True)
    assert " rw," in await isolated.text("grep ' /var ' /proc/self/mountinfo")
    written = await isolated.run("for each in 'touch /var/x' 'mkdir /var/d' 'ln -s / /var/l'; do $each; done")
    assert written.output.count(b"Permission denied") == 3
    assert await isolated.text("ls -A /var; echo x > /work/x && mv /work/x /work/y && cat /work/y") == "x"
