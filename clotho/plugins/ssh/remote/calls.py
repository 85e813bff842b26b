"""The calls of a remote backend, as the protocols of backends and instances declare them."""

import inspect
from collections.abc import Callable, Coroutine
from functools import cache, wraps
from typing import Any, Concatenate, ParamSpec, TypeVar, get_type_hints

from pydantic import TypeAdapter, ValidationError

from clotho.errors import InvalidInput, SandboxUnavailable
from clotho.frozen_model import FrozenModel
from clotho.plugins.ssh.remote.messages import RemoteError
from clotho.sandbox.backend import SandboxBackend, SandboxInstance
from clotho.sandbox.supervised.layout import Layout

P = ParamSpec("P")
T = TypeVar("T")
Verb = Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]

hints_of = cache(get_type_hints)
_adapter: Callable[[Any], TypeAdapter[Any]] = cache(TypeAdapter)


class RemoteCall(FrozenModel):
    instance: str | None
    """The handle of the instance that is asked; None: the backend."""
    verb: str
    arguments: dict[str, Any]


class RemoteAnswer(FrozenModel):
    result: Any = None
    error: RemoteError | None = None
    unknown_instance: bool = False
    """The server has no such handle: it was started again, or has dropped it. The instance is to be found again."""


class InstanceDescription(FrozenModel):
    """An instance that the server holds open."""

    handle: str
    incarnation: str
    layout: Layout


def forwarded(declared: Verb[P, T]) -> Verb[P, T]:
    """A method with the signature that a protocol declares: it returns what its object's `forward` answers.

    Arguments that the caller leaves out are left out: every backend has the protocol's defaults.
    """
    signature = inspect.signature(declared)

    @wraps(declared)
    async def method(self: Any, /, *given: P.args, **named: P.kwargs) -> T:
        arguments = signature.bind(self, *given, **named).arguments
        del arguments["self"]
        result: T = await self.forward(declared, arguments)
        return result

    return method


def result_of(answer: RemoteAnswer, returns: type[T]) -> T:
    """The result of a call. Raises its error, and SandboxUnavailable for an answer that isn't one."""
    if answer.error is not None:
        raise answer.error.raised()
    if answer.unknown_instance:
        raise SandboxUnavailable("the sandbox's host doesn't hold the sandbox open")
    try:
        result: T = _adapter(returns).validate_python(answer.result)
    except ValidationError as error:
        raise SandboxUnavailable(f"the sandbox's host answered something else: {error}") from error
    return result


def parsed_arguments(call: RemoteCall) -> dict[str, Any]:
    """The arguments of a call as its verb takes them. Raises InvalidInput for a call that there isn't."""
    owner = SandboxBackend if call.instance is None else SandboxInstance
    verb = vars(owner).get(call.verb)
    if not inspect.iscoroutinefunction(verb):
        raise InvalidInput(f"remote sandboxes have no call {call.verb!r}")
    known = {name: hint for name, hint in hints_of(verb).items() if name != "return"}
    if strange := call.arguments.keys() - known.keys():
        raise InvalidInput(f"the call {call.verb} of remote sandboxes has no {', '.join(sorted(strange))}")
    return {name: _adapter(known[name]).validate_python(value) for name, value in call.arguments.items()}
