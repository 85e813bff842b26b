"""Checkpoints of a sandbox under test, and sandboxes that start from them."""

from pathlib import Path

from clotho.sandbox.backend import SandboxSpec
from clotho.sandbox.checkpoints import Checkpoint, Restore
from tests.sandbox.backends import Backend
from tests.sandbox.shell import Shell


class Copies:
    def __init__(self, backend: Backend, spec: SandboxSpec, lease: str, folder: Path) -> None:
        self._backend, self._spec, self._lease = backend, spec, lease
        self.blob = folder / "blob"
        self._made: list[str] = []

    async def take(
        self, shell: Shell, after: str | None = None, previous: Checkpoint | None = None
    ) -> Checkpoint:
        taken = await shell.sandbox.checkpoint(self.blob, after=after, previous=previous)
        assert isinstance(taken, Checkpoint)
        return taken

    async def restore(self, taken: Checkpoint) -> Shell:
        lease = f"{self._lease}{len(self._made) + 1}"
        self._made.append(lease)
        return await self.restore_again(taken)

    async def restore_again(self, taken: Checkpoint) -> Shell:
        """In the last lease that was restored."""
        restore = Restore(taken, self.blob)
        return Shell(await self._backend.create(self._made[-1], self._spec, restore=restore))

    async def copy(self, shell: Shell, after: str | None = None) -> Shell:
        return await self.restore(await self.take(shell, after))

    async def destroy(self) -> None:
        for lease in self._made:
            await self._backend.destroy(lease)
