"""Reading of requests within bounds; an API's own words say what is wrong with one."""

import json
import re
from collections.abc import Sequence
from typing import Protocol, TypeVar

from pydantic import BaseModel, ConfigDict, JsonValue, ValidationError

from clotho.plugins.harness.dialects.canonical import InvalidRequest, Part
from clotho.untrusted import Unreadable, load_json

Place = tuple[str | int, ...]
"""Keys and indices that lead to a value of the request."""

EXPECTED = {
    "string_type": "string",
    "int_type": "integer",
    "bool_type": "boolean",
    "list_type": "array",
    "dict_type": "object",
    "model_type": "object",
}
"""Names of JSON's types by pydantic's names of errors."""
SHOWN_CHARACTERS = 100
"""Of a value that an error quotes."""
MAY_BE_SURROGATE = re.compile(rb"\\u[dD]|\xed[\xa0-\xbf]")


class Sent(BaseModel):
    """An object of a request; fields that its model doesn't have are ignored."""

    # strict: the APIs refuse "1" for a number, which pydantic would take
    model_config = ConfigDict(frozen=True, strict=True)


M = TypeVar("M", bound=Sent)


class Wording(Protocol):
    """Words in which one API refuses requests."""

    def malformed(self, why: str) -> str: ...
    def missing(self, at: Place) -> str: ...
    def empty(self, at: Place) -> str: ...
    def wrong_type(self, at: Place, expected: Sequence[str], value: object) -> str: ...
    def unsupported(self, at: Place, value: str, supported: Sequence[str]) -> str: ...
    def other(self, at: Place, why: str) -> str: ...


class Reader:
    """Reads parts of a request; every method raises InvalidRequest for what isn't of its form."""

    def __init__(self, wording: Wording) -> None:
        self._say = wording

    def body(self, body: bytes) -> dict[str, JsonValue]:
        try:
            value = load_json(body)
        except Unreadable as error:
            raise InvalidRequest(self._say.malformed(str(error))) from None
        if not isinstance(value, dict):
            raise InvalidRequest(self._say.malformed("it is not an object"))
        # few requests have any, and the replacement copies the whole request
        return _without_lone_surrogates(value) if MAY_BE_SURROGATE.search(body) else value

    def read(self, model: type[M], value: object, at: Place = ()) -> M:
        try:
            return model.model_validate(value)
        except ValidationError as invalid:
            raise InvalidRequest(self._fault(invalid, at)) from None

    def objects(self, value: object, at: Place) -> list[Part]:
        """An array of objects."""
        if not isinstance(value, list):
            raise self.wrong_type(at, ("array",), value)
        for index, each in enumerate(value):
            if not isinstance(each, dict):
                raise self.wrong_type((*at, index), ("object",), each)
        return value

    def blocks(self, value: object, at: Place) -> list[Part]:
        """Content that is a text or an array of objects with types; a text is one object."""
        if isinstance(value, str):
            return [{"type": "text", "text": value}]
        if not isinstance(value, list):
            raise self.wrong_type(at, ("string", "array"), value)
        blocks = self.objects(value, at)
        for index, block in enumerate(blocks):
            self.string(block, "type", (*at, index))
        return blocks

    def string(self, value: Part, field: str, at: Place) -> str:
        text = value.get(field)
        if isinstance(text, str):
            return text
        raise (
            self.wrong_type((*at, field), ("string",), text) if field in value else self.missing((*at, field))
        )

    def missing(self, at: Place) -> InvalidRequest:
        return InvalidRequest(self._say.missing(at))

    def empty(self, at: Place) -> InvalidRequest:
        return InvalidRequest(self._say.empty(at))

    def wrong_type(self, at: Place, expected: Sequence[str], value: object) -> InvalidRequest:
        return InvalidRequest(self._say.wrong_type(at, expected, value))

    def refused(self, at: Place, why: str) -> InvalidRequest:
        return InvalidRequest(self._say.other(at, why))

    def _fault(self, invalid: ValidationError, at: Place) -> str:
        first = invalid.errors(include_url=False)[0]
        at, kind = (*at, *first["loc"]), first["type"]
        if kind == "missing":
            return self._say.missing(at)
        if kind == "literal_error":
            supported = first["ctx"]["expected"].replace(" or ", ", ").split(", ")
            return self._say.unsupported(at, str(first["input"])[:SHOWN_CHARACTERS], supported)
        if kind in EXPECTED:
            return self._say.wrong_type(at, (EXPECTED[kind],), first["input"])
        return self._say.other(at, first["msg"])


def _without_lone_surrogates(value: dict[str, JsonValue]) -> dict[str, JsonValue]:
    """Harnesses in JavaScript cut texts within characters; the halves can't be kept as text, or sent on."""
    text = json.dumps(value, ensure_ascii=False)
    whole: dict[str, JsonValue] = json.loads(
        text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    )
    return whole
