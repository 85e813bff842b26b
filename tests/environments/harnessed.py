"""The environment of one file, with a small harness in its workspace."""

from pathlib import Path

from clotho.environment import Item
from tests.environments.one_file import OneFile

AGENT = Path(__file__).parents[1] / "harness/agent.py"


class Harnessed(OneFile):
    def workspace_files(self, item: Item) -> dict[str, str]:
        return {"/work/agent.py": AGENT.read_text()}
