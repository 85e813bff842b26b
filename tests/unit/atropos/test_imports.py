"""Workers never import Atropos: its BaseEnv opens files, and importing it takes seconds."""

import ast
from pathlib import Path

ROOT = Path(__file__).parents[3]
ALLOWED = ("clotho/plugins/atropos/", "clotho/plugins/atropos/api/")


def test_only_the_adapter_and_the_api_import_atroposlib() -> None:
    found = set()
    for folder in ("clotho", "activities", "workflows"):
        for path in (ROOT / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
                names += [node.module] if isinstance(node, ast.ImportFrom) and node.module else []
                if any(name.split(".")[0] == "atroposlib" for name in names):
                    found.add(str(path.relative_to(ROOT)))
    assert [name for name in found if not name.startswith(ALLOWED)] == []
