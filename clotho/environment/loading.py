"""Environments by name: the module, the class, and an instance with its configuration."""

import importlib
import pkgutil
import traceback
from collections.abc import Mapping
from pathlib import Path

from pydantic import JsonValue, ValidationError

from clotho.environment.code import source_files
from clotho.environment.environment import Environment
from clotho.errors import EnvironmentFailed, EnvironmentUnknown, InvalidInput
from clotho.frozen_model import field_errors

EXAMPLES = "environments"


def load_environment(name: str) -> type[Environment]:
    """The class called `module:Class`, or the one environment in `environments/{name}.py`.

    Raises EnvironmentUnknown naming what there is, EnvironmentFailed for a module that is there and fails.
    """
    class_name, path = name.partition(":")[2], module_of(name)
    try:
        module = importlib.import_module(path)
    except Exception as error:
        # the module is there, but one that it imports is missing: a failure of its own
        if not (isinstance(error, ModuleNotFoundError) and f"{path}.".startswith(f"{error.name}.")):
            raise EnvironmentFailed(f"environment {name!r} can't be imported: {_at_fault(error)}") from error
        known = ", ".join(known_environments()) or "none"
        raise EnvironmentUnknown(
            f"unknown environment {name!r}: there is no module {path}. Here are: {known}; or give module:Class"
        ) from error
    found = [
        value
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, Environment) and value.__module__ == module.__name__
    ]
    chosen = [value for value in found if not class_name or value.__name__ == class_name]
    if len(chosen) != 1:
        classes = ", ".join(value.__name__ for value in found) or "none"
        raise EnvironmentUnknown(
            f"environment {name!r}: module {path} has these environments: {classes}; give module:Class"
        )
    return chosen[0]


def module_of(name: str) -> str:
    """The module of environment `name`."""
    module, _, class_name = name.partition(":")
    return module if class_name else f"{EXAMPLES}.{module}"


def sources_of(name: str) -> tuple[Path, ...]:
    """The files of environment `name` and of what it imports from its project, which no agent may read.

    Empty if it isn't here. They are found without importing anything.
    """
    return source_files(module_of(name))


def _at_fault(error: Exception) -> str:
    """The exception on one line, and where the author's code raised it."""
    text = " ".join("".join(traceback.format_exception_only(error)).split())
    frames = [f for f in traceback.extract_tb(error.__traceback__)[1:] if "importlib" not in f.filename]
    return f"{text} ({frames[-1].filename}:{frames[-1].lineno})" if frames else text


def known_environments() -> list[str]:
    """The names of the environments beside the worker; modules whose names begin with _ belong to others."""
    try:
        package = importlib.import_module(EXAMPLES)
    except ModuleNotFoundError:
        return []
    modules = (module.name for module in pkgutil.iter_modules(package.__path__))
    return sorted(name for name in modules if not name.startswith("_"))


def make_environment(name: str, config: Mapping[str, JsonValue]) -> Environment:
    """An instance with `config`; raises InvalidInput naming the fields at fault."""
    kind = load_environment(name)
    try:
        return kind(kind.config_class.model_validate(config))
    except ValidationError as error:
        raise InvalidInput(f"configuration of environment {name!r}: {field_errors(error)}") from error
