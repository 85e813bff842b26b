"""Groups as Atropos takes them: converted, delivered once, and written down.

`HermesAgentBaseEnv`, `ClothoEnv` and the other names of `atropos_adapter` can be imported from here too, so that
an environment needs no checkout.
"""

import importlib
from typing import Any

from clotho import application


def __getattr__(name: str) -> Any:
    """The public names of the root module, which imports Atropos: seconds that most processes don't need."""
    if name.startswith("_"):
        raise AttributeError(name)
    application.on_path()
    adapter = importlib.import_module("atropos_adapter")
    if name not in adapter.__all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(adapter, name)
