"""Classes of other packages, named as `module:Class`."""

import importlib
from typing import Any

from clotho.errors import InvalidInput


def imported(name: str, what: str) -> Any:
    """The class called `module:Class`. Raises InvalidInput, which says `what` it should be, where there is none."""
    module, _, attribute = name.partition(":")
    try:
        return getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise InvalidInput(f"{what} {name} can't be imported: {error}") from error
