"""Groups as Atropos takes them: converted, delivered once, and written down.

`HermesAgentBaseEnv`, `ClothoEnv` and the other names of `atropos_adapter` can be imported from here too, so that
an environment needs no checkout.
"""

import importlib
from typing import Any

from clotho import application
from clotho.plugin import UNKNOWN_OPTIONS_PASS, Command, Plugin

PLUGIN = Plugin(
    "atropos",
    settings="clotho.plugins.atropos.api_settings:AtroposApiSettings",
    commands=(
        Command(
            "serve",
            "clotho.cli.programs:serve",
            "Serve groups of ENV to an Atropos trainer; takes Atropos' --env.* and --openai.* options.",
            UNKNOWN_OPTIONS_PASS,
        ),
        Command(
            "atropos-api",
            "clotho.plugins.atropos.api_command:command",
            "Serve the endpoints of Atropos' run-api; groups, registrations and steps outlive this process.",
        ),
    ),
)


def __getattr__(name: str) -> Any:
    """The public names of the root module, which imports Atropos: seconds that most processes don't need."""
    if name.startswith("_"):
        raise AttributeError(name)
    application.on_path()
    adapter = importlib.import_module("atropos_adapter")
    if name not in adapter.__all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(adapter, name)
