"""A dataset that ends: what a run through Atropos delivers is the same few groups every time."""

from chaos.delivery.size import GROUPS
from clotho.environment import Item
from environments.file_tasks import FileTasks


class FewFileTasks(FileTasks):
    """The first of the file tasks."""

    async def setup(self) -> None:
        await super().setup()
        self._left = GROUPS

    async def get_next_item(self) -> Item | None:  # type: ignore[override]  # The file tasks never end.
        if self._left == 0:
            return None
        self._left -= 1
        return await super().get_next_item()
