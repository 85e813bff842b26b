"""An environment's source: the modules of its project, which a run keeps, and their import."""

import ast
import hashlib
import importlib.machinery
import importlib.util
import io
import linecache
import sys
import sysconfig
import threading
import tokenize
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.abc import MetaPathFinder
from pathlib import Path
from types import CodeType, ModuleType

from clotho.frozen_model import FrozenModel

OWN_PACKAGE = "clotho"
INSTALLED = ("site-packages", "dist-packages")
PARSING = threading.Lock()
MOST_TRIES = 100


KEPT_PREFIX = "clotho_kept_"
"""Prefix of the names of modules that are on no disk: a notebook's classes, named by the hash of their source."""


class ModuleSource(FrozenModel):
    name: str
    path: str
    """Relative to the project's folder, which may be another on each host."""
    package: bool
    source: str


class Code(FrozenModel):
    """The modules of an environment that lie in its project's folder, by name; none where it is installed."""

    modules: tuple[ModuleSource, ...] = ()

    @cached_property
    def fingerprint(self) -> str:
        """16 hexadecimal digits of the modules' names and sources."""
        digest = hashlib.sha256()
        for module in self.modules:
            for text in (module.name, module.source):
                content = text.encode(errors="surrogatepass")
                # with its length: texts that are divided in another way would else have the same digest
                digest.update(len(content).to_bytes(8) + content)
        return digest.hexdigest()[:16]


@dataclass(frozen=True)
class Found:
    """A module's file, and the folder on the path that it was found in."""

    name: str
    file: Path
    root: Path

    @property
    def package(self) -> bool:
        return self.file.name == "__init__.py"


def is_kept_module(name: str) -> bool:
    """Whether the source of the module `name` is in stores alone."""
    return name.startswith(KEPT_PREFIX)


def read_code(module: str) -> Code | None:
    """Read `module` and what it imports from its project, also inside functions.

    None where no source of `module` is on this host.
    """
    projects, closure = set(_projects(sys.path)), _closure(module)
    if not any(each.name == module for each in closure):
        return None
    found = [each for each in closure if each.root in projects]
    sources = (
        ModuleSource(
            name=each.name,
            path=str(each.file.relative_to(each.root)),
            package=each.package,
            source=_text(each.file),
        )
        for each in found
    )
    return Code(modules=tuple(sorted(sources, key=lambda each: each.name)))


def source_files(module: str) -> tuple[Path, ...]:
    """The files of `module` and of what it imports from its project or its own package."""
    return tuple(sorted({each.file for each in _closure(module)}))


def _projects(path: Sequence[str]) -> Iterator[Path]:
    """The folders on the path that hold no installed packages."""
    standard = [Path(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib")]
    for entry in path:
        folder = Path(entry or ".").absolute()
        inside = any(folder == each or each in folder.parents for each in standard)
        if folder.is_dir() and not inside and not any(part in INSTALLED for part in folder.parts):
            yield folder


def _closure(module: str) -> list[Found]:
    """`module` and what it imports, directly or not, from projects and from its own package."""
    projects = list(_projects(sys.path))
    own = module.partition(".")[0]
    everywhere = [Path(entry or ".").absolute() for entry in sys.path]
    found: dict[str, Found | None] = {}
    open_names = list(_with_parents(module))
    while open_names:
        name = open_names.pop()
        top = name.partition(".")[0]
        if name in found or top == OWN_PACKAGE:
            continue
        # its own package is searched where it is installed, too: `source_files` hides it from agents
        each = found[name] = _locate(name, everywhere if top == own else projects)
        if each is None:
            continue
        try:
            tree = _parse_source(_text(each.file))
        except (SyntaxError, ValueError):  # told by the process that imports it
            continue
        for imported in _imported_names(tree, each):
            open_names += _with_parents(imported)
    return [each for each in found.values() if each is not None]


def _parse_source(text: str) -> ast.AST:
    """The tree of a module's source.

    CPython 3.11 counts the depth of trees for all threads together: one that another thread builds meanwhile fails
    this one with SystemError. Ours wait for each other; a library's can't be waited for.
    """
    for _ in range(MOST_TRIES):
        try:
            with PARSING:
                return ast.parse(text)
        except SystemError as error:
            built_elsewhere = error
    raise built_elsewhere


def _with_parents(name: str) -> Iterable[str]:
    parts = name.split(".")
    return (".".join(parts[: number + 1]) for number in range(len(parts)))


def _locate(name: str, folders: Sequence[Path]) -> Found | None:
    relative = Path(*name.split("."))
    for root in folders:
        for file in (root / relative / "__init__.py", root / relative.with_suffix(".py")):
            if file.is_file():
                return Found(name, file, root)
    return None


def _imported_names(tree: ast.AST, at: Found) -> Iterator[str]:
    package = at.name if at.package else at.name.rpartition(".")[0]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                above = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*above, *([base] if base else [])])
            if base:
                yield base
                # a name may be a submodule; _locate finds nothing for the others
                yield from (f"{base}.{alias.name}" for alias in node.names if alias.name != "*")


def _text(file: Path) -> str:
    """Read a source file in its own encoding; the import of a file with bad bytes reports them, not this."""
    content = file.read_bytes()
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(content).readline)
        return io.TextIOWrapper(io.BytesIO(content), encoding).read()
    except (SyntaxError, UnicodeDecodeError):
        return content.decode(errors="replace")


class KeptLoader(importlib.machinery.SourceFileLoader):
    """Loads a module from its kept source, under the name of its file on this host.

    Data files beside it are found as usual, and tracebacks show the lines that were run.
    """

    def __init__(self, module: ModuleSource, path: str) -> None:
        super().__init__(module.name, path)
        self._source = module.source

    # not the inherited one: it would load a .pyc of the file on the disk
    def get_code(self, fullname: str) -> CodeType:
        lines = self._source.splitlines(keepends=True)
        # Without a time of its own, an entry is never compared with the file, which may have been edited.
        linecache.cache[self.path] = (len(self._source), None, lines, self.path)
        return compile(self._source, self.path, "exec", dont_inherit=True)

    def get_source(self, fullname: str) -> str:
        return self._source


class KeptModules(MetaPathFinder):
    """Finds the modules of a run's code, ahead of the finder that searches sys.path."""

    def __init__(self, code: Code) -> None:
        self._modules = {module.name: module for module in code.modules}
        self._roots = list(_projects(sys.path))

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if (module := self._modules.get(fullname)) is None:
            return None
        places = [root / module.path for root in self._roots]
        file = next(
            (place for place in places if place.exists()), places[-1] if places else Path(module.path)
        )
        return importlib.util.spec_from_file_location(
            fullname,
            file,
            loader=KeptLoader(module, str(file)),
            submodule_search_locations=[str(file.parent)] if module.package else None,
        )
