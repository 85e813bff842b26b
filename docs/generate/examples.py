"""Example files shown in pages: a fence with the title of a file holds that file's text."""

import re
from pathlib import Path

FENCE = re.compile(r'^```(?P<language>\w+) title="(?P<file>[^"]+)"\n.*?^```$', re.MULTILINE | re.DOTALL)


def with_examples(page: str, root: Path) -> str:
    """`page`, with every fence that names a file of `root` holding what the file holds."""

    def filled(fence: re.Match[str]) -> str:
        file = root / fence["file"]
        if not file.is_file():
            return fence[0]
        return f'```{fence["language"]} title="{fence["file"]}"\n{file.read_text()}```'

    return FENCE.sub(filled, page)
