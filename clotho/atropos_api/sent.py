"""What a sender may post: atroposlib's scored groups, with an optional id, and nothing that breaks a batch."""

import gzip
import json
import zlib
from collections.abc import Sequence
from typing import Annotated

from atroposlib.api.server import ScoredData
from pydantic import ConfigDict, Field, TypeAdapter, ValidationError, model_validator

MOST_COMPLAINTS = 8
PER_TOKEN = ("masks", "ref_logprobs", "inference_logprobs")
"""Fields that hold one number for each token; the logprobs may be absent."""
UNTYPED = ("messages", "generation_params", "overrides", "group_overrides", "images")
"""Fields that hold any JSON."""


class Refused(Exception):
    """A request that is answered with `status` and changes nothing."""

    def __init__(self, status: int, detail: object) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail


class SentGroup(ScoredData):  # type: ignore[misc]
    """One scored group as it was sent; `group_id` names it once and for all."""

    model_config = ConfigDict(allow_inf_nan=False)

    group_id: Annotated[str, Field(min_length=1, max_length=512)] | None = None
    env_id: Annotated[int, Field(ge=0)] | None = None

    @property
    def rows(self) -> int:
        return len(self.tokens)

    @model_validator(mode="after")
    def _has_one_shape(self) -> "SentGroup":
        if not self.tokens:
            raise ValueError("tokens has no rows")
        for name in ("masks", "scores", "advantages", "ref_logprobs", "inference_logprobs"):
            found = getattr(self, name)
            if found is not None and len(found) != self.rows:
                raise ValueError(f"{name} has {len(found)} rows, tokens has {self.rows}")
        for name in PER_TOKEN:
            for row, (numbers, tokens) in enumerate(
                zip(getattr(self, name) or (), self.tokens, strict=False)
            ):
                if len(numbers) != len(tokens):
                    raise ValueError(f"{name}[{row}] has {len(numbers)} numbers for {len(tokens)} tokens")
        return self

    @model_validator(mode="after")
    def _is_finite(self) -> "SentGroup":
        # A batch with one such number can't be written as JSON: nobody would ever fetch it.
        for name in UNTYPED:
            try:
                json.dumps(getattr(self, name), allow_nan=False)
            except ValueError:
                raise ValueError(f"{name} holds a number that is not finite") from None
        return self


_ONE = TypeAdapter(SentGroup)
_LIST = TypeAdapter(list[SentGroup])


def unzipped(body: bytes, encoding: str) -> bytes:
    """The body as it was before a Content-Encoding of gzip. Raises Refused."""
    if "gzip" not in encoding.lower() or not body:
        return body
    try:
        return gzip.decompress(body)
    except (OSError, EOFError, zlib.error) as error:
        raise Refused(400, f"the body is not gzip: {error}") from error


def read_groups(body: bytes, *, many: bool) -> Sequence[SentGroup]:
    """The groups of a /scored_data_list body, or the one of a /scored_data body. Raises Refused."""
    try:
        return _LIST.validate_json(body) if many else [_ONE.validate_json(body)]
    except ValidationError as error:
        complaints = error.errors(include_url=False, include_input=False, include_context=False)
        if complaints[0]["type"] == "json_invalid":
            raise Refused(400, f"the body is not JSON: {complaints[0]['msg']}") from error
        shown = [{**each, "loc": ("body", *each["loc"])} for each in complaints[:MOST_COMPLAINTS]]
        raise Refused(422, shown) from error
