from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from clotho.identifiers import job_key
from clotho.sandbox.base import SandboxSpec
from clotho.sandbox.checkpoints import Checkpoint, Restore
from clotho.sandbox.local import LocalBackend
from tests.sandbox.shell import Shell


class Copies:
    """Checkpoints of a sandbox, and what is restored from them."""

    def __init__(self, backend: LocalBackend, spec: SandboxSpec, lease: str, folder: Path) -> None:
        self._backend, self._spec, self._lease, self._folder = backend, spec, lease, folder
        self.leases: list[str] = []

    def blob(self, name: str = "blob") -> Path:
        return self._folder / name

    async def take(self, shell: Shell, after: str | None = None, name: str = "blob") -> Checkpoint:
        taken = await shell.sandbox.checkpoint(self.blob(name), after=after)
        assert isinstance(taken, Checkpoint)
        return taken

    async def restore(self, taken: Checkpoint, name: str = "blob") -> Shell:
        lease = f"{self._lease}{len(self.leases) + 1}"
        self.leases.append(lease)
        restore = Restore(taken, self.blob(name))
        return Shell(await self._backend.create(lease, self._spec, restore=restore))

    async def copy(self, shell: Shell, after: str | None = None) -> Shell:
        return await self.restore(await self.take(shell, after))


@pytest.fixture
async def copies(
    backend: LocalBackend, spec: SandboxSpec, lease: str, tmp_path: Path
) -> AsyncIterator[Copies]:
    made = Copies(backend, spec, lease, tmp_path)
    yield made
    for each in made.leases:
        await backend.destroy(each)


async def test_files_and_shell_come_back(own: Shell, copies: Copies) -> None:
    first = await own.run(
        "echo 1 > a; mkdir -p d/e; echo 2 > ~/b; echo 3 > ${TMPDIR:-/tmp}/c; cd d/e; export X='x  y'",
        name="one",
    )
    assert first.code == 0
    shell = await copies.copy(own, after=job_key("one"))
    again = await shell.run(
        "cat ../../a ~/b ${TMPDIR:-/tmp}/c; echo $X; basename $PWD; echo $PWD; ls -la ../..",
        name="two",
        after=job_key("one"),
    )
    assert again.output.decode().splitlines()[:5] == ["1", "2", "3", "x y", "e"]
