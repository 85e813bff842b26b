"""The OpenAPI document of the rollout API."""

from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from clotho.plugins.orders.messages import (
    ClaimOrder,
    Failure,
    Fetch,
    GroupAnswer,
    GroupOrder,
    OrderedGroups,
    RunOrder,
)

SCHEMAS = "#/components/schemas/"
RUN, GROUP, CLAIM = "/runs/{run}", "/runs/{run}/groups/{name}", "/runs/{run}/claims/{claim}"
OPERATIONS: tuple[tuple[str, str, str, type[BaseModel] | None, type[BaseModel]], ...] = (
    ("put", RUN, "Open a run, or check that it is the same.", RunOrder, RunOrder),
    ("get", f"{RUN}/groups", "Names that are neither acknowledged nor refused.", None, OrderedGroups),
    ("put", GROUP, "Order a group, unless it was ordered.", GroupOrder, GroupAnswer),
    ("get", GROUP, "Wait for a group, and take its rows.", None, GroupAnswer),
    ("delete", GROUP, "End a group without rows, unless they were acknowledged.", None, GroupAnswer),
    ("post", f"{GROUP}/acknowledge", "Note that the trainer has the rows.", None, GroupAnswer),
    ("put", CLAIM, "Order the next group of a sequence, unless this claim did.", ClaimOrder, GroupAnswer),
)
"""Method, path, summary, body and answer."""
REFUSALS = {
    "401": "No token, or another one.",
    "403": "A web page asks, or the server is addressed by a name that it doesn't know.",
    "404": "No such run or group.",
    "409": "The name stands for something else, or the run can't be as asked; or the group isn't finished.",
    "413": "The body is larger than 16 MiB, or has more values than such a body should.",
    "422": "Fields that don't fit.",
    "503": "The store or Temporal is away: ask again.",
}


def document() -> dict[str, Any]:
    models = (RunOrder, GroupOrder, ClaimOrder, GroupAnswer, OrderedGroups, Failure)
    _, schemas = models_json_schema(
        [(model, "validation") for model in models], ref_template=f"{SCHEMAS}{{model}}"
    )
    paths: dict[str, dict[str, Any]] = {}
    for method, path, summary, body, answer in OPERATIONS:
        paths.setdefault(path, {})[method] = _operation(method, path, summary, body, answer)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Clotho's rollout API", "version": "1"},
        "paths": paths,
        "components": {"schemas": schemas["$defs"]},
    }


def _operation(
    method: str, path: str, summary: str, body: type[BaseModel] | None, answer: type[BaseModel]
) -> dict[str, Any]:
    named = [name for name in ("run", "name", "claim") if f"{{{name}}}" in path]
    parameters = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in named
    ]
    if (method, path) == ("get", GROUP):
        fields = Fetch.model_json_schema(ref_template=f"{SCHEMAS}{{model}}")["properties"]
        parameters += [{"name": name, "in": "query", "schema": schema} for name, schema in fields.items()]
    refusals = {status: _content(meaning, Failure) for status, meaning in REFUSALS.items()}
    operation = {
        "summary": summary,
        "parameters": parameters,
        "responses": {"200": _content("", answer), **refusals},
    }
    return operation if body is None else {**operation, "requestBody": _content("", body)}


def _content(description: str, model: type[BaseModel]) -> dict[str, Any]:
    schema = {"$ref": f"{SCHEMAS}{model.__name__}"}
    return {"description": description, "content": {"application/json": {"schema": schema}}}
