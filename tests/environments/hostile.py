"""The environment of one file, with hostile programs in its workspace; an item's number is its mode's."""

from pathlib import Path

from clotho.environment import Item
from tests.environments.one_file import OneFile

HOSTILE = Path(__file__).parents[1] / "harness/hostile.py"


class Hostile(OneFile):
    def workspace_files(self, item: Item) -> dict[str, str]:
        return {"/work/hostile.py": HOSTILE.read_text()}
