"""Values as messages: JSON, the bytes in them after it; and errors by the name of their class."""

import json
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from clotho import errors
from clotho.errors import ClothoError, SandboxUnavailable
from clotho.frozen_model import FrozenModel

BYTES = "\0bytes"
"""The only key of an object that stands for bytes; its value is how many of them."""
_LENGTH_BYTES = 4
_CLASSES = {
    each.__name__: each
    for each in vars(errors).values()
    if isinstance(each, type) and issubclass(each, ClothoError)
}


class RemoteError(FrozenModel):
    """An error of the other side."""

    kind: str
    message: str
    fields: dict[str, str | None] = {}

    @classmethod
    def of(cls, error: Exception) -> "RemoteError":
        if not isinstance(error, ClothoError):
            described = f"the sandbox's host failed: {type(error).__name__}: {error}"
            return cls(kind=SandboxUnavailable.__name__, message=described)
        said = {name: value for name, value in vars(error).items() if value is None or isinstance(value, str)}
        return cls(kind=type(error).__name__, message=str(error), fields=said)

    def raised(self) -> ClothoError:
        kind = _CLASSES.get(self.kind, SandboxUnavailable)
        # without __init__, whose parameters differ between the classes: their fields come along
        error = kind.__new__(kind, self.message)
        vars(error).update(self.fields)
        return error


def pack(value: object) -> bytes:
    found: list[bytes] = []

    def encode(value: object) -> object:
        match value:
            case bytes():
                found.append(value)
                return {BYTES: len(value)}
            case BaseModel():
                return dict(value)
            case Mapping():
                return dict(value)
            case set() | frozenset():
                return sorted(value)
            case Path():
                return str(value)
            case _ if is_dataclass(value):
                return {field.name: getattr(value, field.name) for field in fields(value)}
        raise TypeError(f"{type(value).__name__} can't be sent")

    text = json.dumps(value, default=encode, separators=(",", ":")).encode()
    return b"".join((len(text).to_bytes(_LENGTH_BYTES, "big"), text, *found))


def unpack(message: bytes) -> Any:
    """The value of a message, models as their fields. Raises SandboxUnavailable for what is no message."""
    end = _LENGTH_BYTES + int.from_bytes(message[:_LENGTH_BYTES], "big")

    def decode(value: dict[str, Any]) -> object:
        nonlocal end
        size = value.get(BYTES)
        if len(value) != 1 or type(size) is not int:
            return value
        start, end = end, end + size
        if size < 0 or end > len(message):
            raise ValueError("bytes are missing")
        return message[start:end]

    try:
        return json.loads(message[_LENGTH_BYTES:end], object_hook=decode)
    except (ValueError, RecursionError) as error:
        raise SandboxUnavailable(f"a damaged message from a remote sandbox's host: {error}") from error
