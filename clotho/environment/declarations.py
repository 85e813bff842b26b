"""Declarations of tools by an author: `@tool` on a typed function, and a class for tools with state."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar, overload

from pydantic import BaseModel, ConfigDict

from clotho.environment.signatures import signature_of

DECLARED = "__clotho_tool__"
"""The attribute of a declared function that holds its Declaration."""

Function = TypeVar("Function", bound=Callable[..., Any])


@dataclass(frozen=True)
class Declaration:
    """An author's declaration of a function, beside its signature."""

    toolset: str
    idempotent: bool
    read_only: bool
    seconds: float


@overload
def tool(function: Function, /) -> Function: ...
@overload
def tool(
    *, toolset: str = ..., idempotent: bool = ..., read_only: bool = ..., seconds: float = ...
) -> Callable[[Function], Function]: ...
def tool(
    function: Any = None,
    /,
    *,
    toolset: str = "environment",
    idempotent: bool = False,
    read_only: bool = False,
    seconds: float = 120.0,
) -> Any:
    """Declare a typed function a tool: its name, signature and docstring are what the model is shown.

    `idempotent`: a call that was interrupted may be repeated. `read_only`: it changes nothing at all, and
    `parallel_tools` may run its calls side by side. A call is given up after `seconds`. Raises InvalidInput
    for a function without types or a docstring.
    """
    declaration = Declaration(toolset, idempotent or read_only, read_only, seconds)

    def declare(declared: Function) -> Function:
        # only for what it raises: a mistake shows where the module is imported
        signature_of(declared)
        setattr(declared, DECLARED, declaration)
        return declared

    return declare if function is None else declare(function)


class StatefulTools(BaseModel):
    """Tools that share state: fields of a subclass, read and changed by its methods that are declared with `@tool`.

    The state belongs to a rollout and is JSON: it is kept with the result of each call, and a call that raises
    leaves it as it was.
    """

    model_config = ConfigDict(validate_assignment=True)
