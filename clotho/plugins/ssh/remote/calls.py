"""The calls of a remote backend, as the protocols of backends and instances declare them."""

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, get_type_hints

from pydantic import TypeAdapter

from clotho.errors import InvalidInput
from clotho.frozen_model import FrozenModel
from clotho.plugins.ssh.remote.messages import RemoteError
from clotho.sandbox.backend import SandboxBackend, SandboxInstance
from clotho.sandbox.supervised.layout import Layout

BACKEND_VERBS = frozenset(
    {
        "attach",
        "create",
        "destroy",
        "evidence",
        "expired",
        "leases",
        "open_verifier",
        "probe",
        "reap",
        "renew",
        "system",
        "verify_in_place",
    }
)
INSTANCE_VERBS = frozenset(
    {
        "applied",
        "checkpoint",
        "close_input",
        "kill",
        "manifest",
        "output",
        "raise_fence",
        "read_file",
        "renew",
        "send_input",
        "sessions",
        "start",
        "wait",
        "write_file",
    }
)


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


def parsed_arguments(call: RemoteCall) -> dict[str, Any]:
    """The arguments of a call as its verb takes them. Raises InvalidInput for a call that there isn't."""
    owner, verbs = (
        (SandboxBackend, BACKEND_VERBS) if call.instance is None else (SandboxInstance, INSTANCE_VERBS)
    )
    if call.verb not in verbs:
        raise InvalidInput(f"remote sandboxes have no call {call.verb!r}")
    known = _arguments_of(getattr(owner, call.verb))
    if strange := call.arguments.keys() - known.keys():
        raise InvalidInput(f"the call {call.verb} of remote sandboxes has no {', '.join(sorted(strange))}")
    return {name: known[name].validate_python(value) for name, value in call.arguments.items()}


@cache
def _arguments_of(verb: Callable[..., object]) -> Mapping[str, TypeAdapter[Any]]:
    hints = get_type_hints(verb)
    return {name: TypeAdapter(hint) for name, hint in hints.items() if name != "return"}
