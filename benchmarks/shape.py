"""Measures the product's shape: lines, files, functions, comments and import circles.

    python -m benchmarks.shape

The product is `clotho/`, `workflows/`, `activities/`, `worker.py` and `atropos_adapter.py`; its core is all of
that outside `clotho/plugins/`. A function's lines go from its `def` to its end, with its docstring. Modules form an
import circle if each imports all others, directly or not; imports inside functions count.
"""

import ast
import statistics
import sys
import tokenize
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
PLUGINS = ROOT / "clotho" / "plugins"
SHORT, LONG = 4, 60
"""Lines up to which a function is short, and above which it is long."""

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Source:
    """One file of the product."""

    path: Path
    text: str
    tree: ast.Module

    @property
    def lines(self) -> int:
        return len(self.text.splitlines())

    @property
    def plugin(self) -> str | None:
        below = self.path.relative_to(PLUGINS).parts if PLUGINS in self.path.parents else ()
        return below[0] if len(below) > 1 else None

    @property
    def module(self) -> str:
        parts = self.path.relative_to(ROOT).with_suffix("").parts
        return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)

    def comments(self) -> int:
        with self.path.open("rb") as file:
            return sum(token.type == tokenize.COMMENT for token in tokenize.tokenize(file.readline))

    def function_lines(self) -> list[int]:
        functions = (node for node in ast.walk(self.tree) if isinstance(node, Function))
        return [(node.end_lineno or node.lineno) - node.lineno + 1 for node in functions]


def product() -> list[Source]:
    folders = ("clotho", "workflows", "activities")
    paths = [path for folder in folders for path in sorted((ROOT / folder).rglob("*.py"))]
    paths += [ROOT / "worker.py", ROOT / "atropos_adapter.py"]
    texts = {path: path.read_text() for path in paths}
    return [Source(path, text, ast.parse(text)) for path, text in texts.items()]


def imported_modules(source: Source, known: frozenset[str]) -> set[str]:
    """Modules of the product that a file names in an import, at any depth."""
    named: set[str] = set()
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Import):
            named |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            full = {alias.name: f"{node.module}.{alias.name}" for alias in node.names}
            named |= {name if name in known else node.module for name in full.values()}
    return (named & known) - {source.module}


def largest_circle(imports: dict[str, set[str]]) -> list[str]:
    """The largest strongly connected set of modules; one module alone is no circle."""
    reached = {module: reachable(module, imports) for module in imports}
    circles = [
        sorted(other for other in within if module in reached[other])
        for module, within in reached.items()
        if module in within
    ]
    return max(circles, key=len, default=[])


def reachable(start: str, imports: dict[str, set[str]]) -> set[str]:
    found: set[str] = set()
    ahead = list(imports[start])
    while ahead:
        module = ahead.pop()
        if module not in found:
            found.add(module)
            ahead += imports[module]
    return found


def measure(sources: list[Source]) -> list[tuple[str, str]]:
    everything = sum(source.lines for source in sources)
    plugins = Counter[str]()
    for source in sources:
        if source.plugin is not None:
            plugins[source.plugin] += source.lines
    functions = [count for source in sources for count in source.function_lines()]
    short = sum(count <= SHORT for count in functions)
    comments = sum(source.comments() for source in sources)
    known = frozenset(source.module for source in sources)
    circle = largest_circle({source.module: imported_modules(source, known) for source in sources})
    return [
        ("core, lines", f"{everything - plugins.total():,}"),
        ("everything, lines", f"{everything:,}"),
        *((f"plugin {name}, lines", f"{count:,}") for name, count in plugins.most_common()),
        ("files", f"{len(sources):,}"),
        ("median file, lines", f"{statistics.median(source.lines for source in sources):.0f}"),
        ("functions", f"{len(functions):,}"),
        (f"functions of up to {SHORT} lines", f"{short / len(functions):.1%}"),
        (f"functions of over {LONG} lines", f"{sum(count > LONG for count in functions)}"),
        ("comments per 100 lines", f"{100 * comments / everything:.2f}"),
        ("largest import circle, files", f"{len(circle)} {' '.join(circle)}"),
    ]


if __name__ == "__main__":
    for what, figure in measure(product()):
        sys.stdout.write(f"{what:36}{figure}\n")
