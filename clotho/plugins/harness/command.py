"""`clotho agents`: the programs that --agent takes, and what each needs."""

import json
from typing import Annotated

import typer
from rich.table import Table

from clotho.cli.terminal import make_console
from clotho.plugin import plugins
from clotho.plugins.harness.harnesses import KNOWN


def command(as_json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False) -> None:
    """List the programs that --agent takes, and how each is installed where sandboxes see it."""
    known = [{"name": name, "install": harness.install} for name, harness in KNOWN.items()]
    for plugin in plugins().values():
        if plugin.name != "harness":
            known += [{"name": name, "install": f"plugin {plugin.name} brings it"} for name in plugin.agents]
    if as_json:
        typer.echo(json.dumps(known, indent=2))
        return
    table = Table("agent", "install")
    for each in known:
        table.add_row(each["name"], each["install"])
    make_console().print(table)
