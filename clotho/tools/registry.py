"""The tools of this installation: those in this package, and those that other packages offer.

A tool of Clotho's is any concrete Tool subclass in a module below clotho.tools. Another package offers one by an
entry point in the group "clotho.tools" that names its Tool subclass (docs/how-to/tool.md). An environment's own are
declared with `@tool` (docs/how-to/own-tools.md).
"""

import importlib
import pkgutil
from collections.abc import Iterable, Iterator
from importlib.metadata import entry_points

import clotho.tools
from clotho.errors import InvalidInput
from clotho.tools.arguments import check_schema
from clotho.tools.tool import Tool, is_tool, tools_in

ENTRY_POINTS = "clotho.tools"


class Registry:
    """Tools by name. Raises InvalidInput where two claim one name, or one has parameters of no JSON schema."""

    def __init__(self, tools: Iterable[Tool]) -> None:
        self._tools: dict[str, Tool] = {}
        self._add(tools)

    def with_tools(self, tools: Iterable[Tool]) -> "Registry":
        """These and further ones. Raises InvalidInput as the constructor does."""
        both = Registry(())
        both._tools = dict(self._tools)
        both._add(tools)
        return both

    def _add(self, tools: Iterable[Tool]) -> None:
        for tool in tools:
            check_schema(tool.name, tool.parameters)
            taken = self._tools.setdefault(tool.name, tool)
            if taken is not tool:
                raise InvalidInput(
                    f"tool {tool.name!r} is defined by both {_origin(taken)} and {_origin(tool)}"
                )

    @classmethod
    def discover(cls) -> "Registry":
        """Import every module of this package and every entry point; what fails to import, raises."""
        return cls(kind() for kind in (*_own_tools(), *_offered_tools()))

    def get(self, name: str) -> Tool | None:
        return self._tools.get(name)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(sorted(self._tools))

    def __iter__(self) -> Iterator[Tool]:
        return iter(self._tools[name] for name in self.names)


def _own_tools() -> Iterator[type[Tool]]:
    for module in pkgutil.walk_packages(clotho.tools.__path__, f"{clotho.tools.__name__}."):
        yield from tools_in(importlib.import_module(module.name))


def _offered_tools() -> Iterator[type[Tool]]:
    for point in entry_points(group=ENTRY_POINTS):
        kind = point.load()
        if not is_tool(kind):
            raise InvalidInput(
                f"entry point {point.name!r} of {ENTRY_POINTS}: {point.value} is no concrete Tool class"
            )
        yield kind


def _origin(tool: Tool) -> str:
    return f"{type(tool).__module__}.{type(tool).__qualname__}"
