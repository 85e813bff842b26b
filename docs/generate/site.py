"""The hook of mkdocs.yml: pages that are kept at the root of the repository, and links to and from them."""

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[2]
ELSEWHERE = {
    "README.md": "index.md",
    **{path: path for path in ("CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "examples/README.md")},
    "examples/grpo_tiny/README.md": "examples/grpo_tiny/README.md",
    "examples/trl_tiny/README.md": "examples/trl_tiny/README.md",
    "examples/grpo_tiny/results/comparison.svg": "examples/grpo_tiny/results/comparison.svg",
}
"""Files outside of docs/ that are part of the site, and their places in it."""
LINK = re.compile(r"(?<=\]\()(?P<path>[^)#:\s]+)(?=[)#])")


def on_files(files: Files, config: Any) -> Files:
    for source, place in ELSEWHERE.items():
        files.append(File.generated(config, place, abs_src_path=str(ROOT / source)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """The page, with the links of the repository as links of the site."""
    place = page.file.src_uri
    source = next((at for at, put in ELSEWHERE.items() if put == place), f"docs/{place}")

    def moved(link: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(posixpath.dirname(source), link["path"]))
        in_site = ELSEWHERE.get(target, target.removeprefix("docs/"))
        return posixpath.relpath(in_site, posixpath.dirname(place) or ".")

    return LINK.sub(moved, markdown)
