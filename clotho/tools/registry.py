"""The tools of this installation: those of the core, and those that plugins offer (docs/how-to/tool.md).

An environment's own are declared with `@tool` (docs/how-to/own-tools.md).
"""

from collections.abc import Iterable, Iterator

from clotho.errors import InvalidInput
from clotho.plugin import load, plugins
from clotho.tools.arguments import check_schema
from clotho.tools.tool import Tool, is_tool

OWN = (
    "clotho.tools.delegate_task:DelegateTask",
    "clotho.tools.execute_code:ExecuteCode",
    "clotho.tools.files.patch:Patch",
    "clotho.tools.files.read_file:ReadFile",
    "clotho.tools.files.search_files:SearchFiles",
    "clotho.tools.files.write_file:WriteFile",
    "clotho.tools.process:Process",
    "clotho.tools.terminal:Terminal",
    "clotho.tools.todo:Todo",
)


class Registry:
    """Tools by name. Raises InvalidInput where two claim one name, or the parameters of one are no JSON schema."""

    def __init__(self, tools: Iterable[Tool]) -> None:
        self._tools: dict[str, Tool] = {}
        self._add(tools)

    def with_tools(self, tools: Iterable[Tool]) -> "Registry":
        """A registry of these tools and further ones. Raises InvalidInput as the constructor does."""
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
        """The core's tools and every plugin's. Raises InvalidInput for a plugin's tool that can't be imported."""
        own = (load(target)() for target in OWN)
        return cls((*own, *(tool for name in plugins() for tool in _offered_by(name))))

    def get(self, name: str) -> Tool | None:
        return self._tools.get(name)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(sorted(self._tools))

    def __iter__(self) -> Iterator[Tool]:
        return iter(self._tools[name] for name in self.names)


def _offered_by(plugin: str) -> Iterator[Tool]:
    for target in plugins()[plugin].tools:
        try:
            kind = load(target)
        except (ImportError, AttributeError) as error:
            raise InvalidInput(f"plugin {plugin!r} offers a tool {target}: {error}") from error
        if not is_tool(kind):
            raise InvalidInput(f"plugin {plugin!r} offers {target} as a tool: it is no concrete Tool class")
        yield kind()


def _origin(tool: Tool) -> str:
    return f"{type(tool).__module__}.{type(tool).__qualname__}"
