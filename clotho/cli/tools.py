"""`clotho tools`: the tools and toolsets of this installation, and what those that can't be offered lack."""

import json
from dataclasses import asdict
from typing import Annotated, Any

import typer
from pydantic import ValidationError
from rich.table import Table

from clotho.cli.terminal import make_console
from clotho.config import load_settings
from clotho.environment.loading import load_environment
from clotho.environment.tools import own_tools
from clotho.errors import InvalidInput
from clotho.frozen_model import field_errors
from clotho.plugin_settings import with_run_settings
from clotho.tools import catalogue
from clotho.tools.registry import Registry
from clotho.tools.resolution import resolve, toolset_members
from clotho.tools.tool import ToolSettings


def command(
    toolset: Annotated[
        list[str] | None, typer.Option("--toolset", help="Only the tools of this toolset; may be repeated.")
    ] = None,
    environment: Annotated[
        str | None, typer.Option(help="With the tools of this environment's own.", metavar="ENV")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
) -> None:
    """List the tools that runs can offer, their toolsets, and what is missing for the others."""
    own = own_tools(load_environment(environment)) if environment else ()
    registry = Registry([*Registry.discover(), *own])
    found = listing(registry, toolset or None, _settings())
    if as_json:
        typer.echo(json.dumps(found, indent=2, ensure_ascii=False))
        return
    table = Table("tool", "toolsets", "runs", "available")
    for tool in found["tools"]:
        runs = {True: "in the sandbox", False: "on a worker", None: ""}[tool["sandboxed"]]
        table.add_row(tool["name"], ", ".join(tool["toolsets"]), runs, tool["missing"] or "yes")
    for brought in found["brought"]:
        table.add_row(brought["tools"], brought["name"], brought["runs"], brought["missing"] or "yes")
    make_console().print(table)


def listing(registry: Registry, toolsets: list[str] | None, settings: ToolSettings) -> dict[str, Any]:
    """The tools of `toolsets`, by default of all, and every toolset; raises InvalidInput for unknown ones."""
    members = toolset_members(registry, settings)
    asked = resolve(registry, toolsets if toolsets is not None else sorted(members), settings=settings)
    offered = {tool.name: tool for tool in asked.tools}
    return {
        "tools": [
            {
                "name": name,
                "toolsets": sorted(each for each, tools in members.items() if name in tools),
                "sandboxed": tool.sandboxed if (tool := registry.get(name)) else None,
                "missing": asked.unavailable.get(name),
            }
            for name in sorted({*offered, *asked.unavailable})
        ],
        "brought": [asdict(each) for each in settings.toolsets if toolsets is None or each.name in toolsets],
        "toolsets": {
            **{name: sorted(tools) for name, tools in sorted(members.items())},
            **{name: list(parts) for name, parts in catalogue.COMPOSITES.items()},
        },
    }


def _settings() -> ToolSettings:
    """The settings that runs of this machine's configuration have."""
    run = load_settings().run
    try:
        return ToolSettings.model_validate(
            {"delegation": run.delegation, "plugins": with_run_settings({}, run.sections)}
        )
    except ValidationError as error:
        raise InvalidInput(field_errors(error)) from error
