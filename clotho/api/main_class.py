"""Environments that are classes of a notebook or script: workers get their source from the store."""

import ast
import hashlib
import linecache
import symtable
import sys
from pathlib import Path

from clotho.environment.code import KEPT_PREFIX, Code, KeptModules, ModuleSource
from clotho.errors import InvalidInput

CELLS = ("<ipython-input", "<stdin>")
KERNEL_FOLDER = "/ipykernel_"


def main_class_code(kind: type) -> tuple[str, Code]:
    """The name of an environment of `__main__`, and a module with the class and what it uses.

    Raises InvalidInput for a class that needs a value of `__main__` that can't be written as source.
    """
    source = _module_source(kind)
    # named after its source: a changed cell is another module, which no process has imported
    name = f"{KEPT_PREFIX}{hashlib.sha256(source.encode()).hexdigest()[:16]}"
    code = Code(modules=(ModuleSource(name=name, path=f"{name}.py", package=False, source=source),))
    # this process makes the environment by that name, too, for its configuration
    if name not in sys.modules:
        sys.meta_path.insert(0, KeptModules(code))
    return f"{name}:{kind.__name__}", code


def _module_source(kind: type) -> str:
    """The class with everything of `__main__` that it uses, in the order of the definitions there."""
    imports, definitions = _statements()
    here = vars(sys.modules["__main__"])
    wanted: set[str] = set()
    constants: list[str] = []
    open_names = [kind.__name__]
    while open_names:
        name = open_names.pop()
        if name in wanted or name not in here:  # a builtin, or a name that is wrong here, too
            continue
        wanted.add(name)
        # the name's value as it is now: a later cell may have bound it to something imported
        if name in definitions and getattr(here[name], "__module__", None) == "__main__":
            open_names += _globals_of(definitions[name])
        elif name not in imports:
            if not _is_literal(here[name]):
                raise InvalidInput(
                    f"{kind.__name__} uses {name!r}, which can't be sent to workers: define it inside the class, "
                    f"or move {kind.__name__} into a module beside the notebook and import it"
                )
            constants.append(f"{name} = {here[name]!r}")
    # a statement once, though it binds several names
    lines = dict.fromkeys(text for name, text in imports.items() if name in wanted)
    defined = [text for name, text in definitions.items() if name in wanted]
    return "\n\n".join(["\n".join(lines), *constants, *defined]) + "\n"


def _statements() -> tuple[dict[str, str], dict[str, str]]:
    """The imports of `__main__` by the names that they bind, and its classes and functions with their source."""
    imports: dict[str, str] = {}
    definitions: dict[str, str] = {}
    for text in _sources():
        for node in _tree(text).body:
            if isinstance(node, ast.Import | ast.ImportFrom):
                for alias in node.names:
                    bound = alias.asname or alias.name.partition(".")[0]
                    imports[bound] = ast.unparse(node)
            elif isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                # lineno is that of `class` or `def`, below the decorators
                first = min([node.lineno, *(each.lineno for each in node.decorator_list)])
                definitions.pop(node.name, None)  # a later definition comes after what it may use by then
                definitions[node.name] = "\n".join(text.splitlines()[first - 1 : node.end_lineno])
    return imports, definitions


def _tree(text: str) -> ast.Module:
    try:
        return ast.parse(text)
    except SyntaxError:  # a cell with magic commands
        lines = ("" if line.startswith(("%", "!", "?")) else line for line in text.splitlines())
        return ast.parse("\n".join(lines))


def _sources() -> list[str]:
    """The texts that `__main__` was made of: its file, or the notebook's cells in the order of their execution."""
    if (file := getattr(sys.modules["__main__"], "__file__", None)) is not None:
        return [Path(file).read_text()]
    cells = [name for name in linecache.cache if KERNEL_FOLDER in name or name.startswith(CELLS)]
    return ["".join(linecache.getlines(name)) for name in cells]


def _globals_of(source: str) -> set[str]:
    """The global names that the source of a class or function uses."""
    tables, found = [symtable.symtable(source, "<cell>", "exec")], set()
    while tables:
        table = tables.pop()
        tables += table.get_children()
        is_module = table.get_type() == "module"
        found |= {
            symbol.get_name()
            for symbol in table.get_symbols()
            if symbol.is_referenced() and (is_module or symbol.is_global())
        }
    return found


def _is_literal(value: object) -> bool:
    try:
        # compared: an object may have the repr of another value
        return bool(ast.literal_eval(repr(value)) == value)
    except (ValueError, SyntaxError, RecursionError):
        return False
