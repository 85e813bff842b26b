"""Clotho: LLM-agent rollouts as durable workflows that become training data.

    import clotho
    run = clotho.run(FixIt, groups=8)
    run.mean_reward, run.to_pandas()

Environments are written with `clotho.environment`; everything else that scripts and notebooks need is here.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from clotho.api.handle import Group, Rollout, Run
    from clotho.api.running import Running, arun, run
    from clotho.api.stored import list_runs, open
    from clotho.errors import ClothoError
    from clotho.evaluation.summary import RunSummary

__all__ = [
    "ClothoError",
    "Group",
    "Rollout",
    "Run",
    "RunSummary",
    "Running",
    "arun",
    "list_runs",
    "open",
    "run",
]

_PLACES = {
    "ClothoError": "clotho.errors",
    "Group": "clotho.api.handle",
    "Rollout": "clotho.api.handle",
    "Run": "clotho.api.handle",
    "RunSummary": "clotho.evaluation.summary",
    "Running": "clotho.api.running",
    "arun": "clotho.api.running",
    "list_runs": "clotho.api.stored",
    "open": "clotho.api.stored",
    "run": "clotho.api.running",
}


def __getattr__(name: str) -> Any:
    # Workers and commands import this package, too: the API is loaded by whoever asks for it.
    if name not in _PLACES:
        raise AttributeError(f"module 'clotho' has no attribute {name!r}")
    return getattr(import_module(_PLACES[name]), name)


def __dir__() -> list[str]:
    return __all__
