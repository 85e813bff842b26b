from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clotho.tools.arguments import coerce, violation


def of(kind: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, **more}


def schema(required: Sequence[str] = (), **properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(required)}


@pytest.mark.parametrize(
    ("value", "kind", "expected"),
    [
        ("5", "integer", 5),
        (" -7 ", "integer", -7),
        ("5.0", "integer", 5),
        (5.0, "integer", 5),
        ("5.5", "integer", "5.5"),
        ("1e3", "number", 1000.0),
        (".5", "number", 0.5),
        ("five", "number", "five"),
        ("true", "boolean", True),
        ("False", "boolean", False),
        ("yes", "boolean", "yes"),
        (12, "string", "12"),
        (True, "string", True),
        ("12", "string", "12"),
        ('["a", "b"]', "array", ["a", "b"]),
        ("a", "array", ["a"]),
        ("[a", "array", ["[a"]),
        (3, "array", [3]),
        ('{"a": 1}', "object", {"a": 1}),
        ("[1]", "object", "[1]"),
        ("[" * 100_000, "object", "[" * 100_000),
    ],
)
def test_values_take_the_type_that_is_asked_for(value: object, kind: str, expected: object) -> None:
    coerced = coerce(value, of(kind))
    assert coerced == expected and type(coerced) is type(expected)


def test_null_means_absent() -> None:
    wanted = schema(limit=of("integer"), items=of("array"), path=of("string"))
    assert coerce({"limit": None, "items": "null", "path": "null"}, wanted) == {"path": "null"}


def test_coercion_reaches_into_arrays_of_objects() -> None:
    wanted = schema(todos=of("array", items=schema(id=of("string"), done=of("boolean"))))
    assert coerce({"todos": '{"id": 1, "done": "true"}'}, wanted) == {"todos": [{"id": "1", "done": True}]}
    assert coerce({"todos": '[{"id": 1, "done": "true"}]'}, wanted) == {"todos": [{"id": "1", "done": True}]}
    assert coerce({"todos": {"id": 2}}, wanted) == {"todos": [{"id": "2"}]}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({}, "missing required argument 'path'"),
        ({"path": ["x"]}, "'path' must be of type string, not array"),
        ({"path": "x", "limit": "many"}, "'limit' must be of type integer, not string"),
        ({"path": "x", "limit": True}, "'limit' must be of type integer, not boolean"),
        ({"path": "x", "limit": 0}, "'limit' must be at least 1"),
        ({"path": "x", "limit": 11}, "'limit' must be at most 10"),
        ({"path": "x", "ratio": float("inf")}, "'ratio' must be of type number, not inf"),
        ({"path": "x", "mode": "c"}, "'mode' must be one of a, b"),
        ({"path": "x", "items": [{"id": 1}]}, "'items[0].id' must be of type string, not integer"),
        ({"path": "x", "items": [{}]}, "missing required argument 'items[0].id'"),
        ({"path": "x", "name": "a b"}, "argument 'name': 'a b' does not match"),
        ({"path": "x", "name": "a " * 9_000}, "argument 'name': 'a a"),
        ({"path": "x", "place": True}, "'place' must be of type string or integer, not boolean"),
        ([], "arguments must be of type object, not array"),
    ],
)
def test_violations_say_what_is_wrong(arguments: dict[str, Any], words: str) -> None:
    wanted = schema(
        required=["path"],
        path=of("string"),
        limit=of("integer", minimum=1, maximum=10),
        ratio=of("number"),
        mode=of("string", enum=["a", "b"]),
        name=of("string", pattern="^[a-z]+$"),
        place={"type": ["string", "integer"]},
        items=of("array", items=schema(required=["id"], id=of("string"))),
    )
    problem = violation(arguments, wanted)
    assert problem is not None and words in problem and len(problem) < 400
    assert violation({"path": "x", "limit": 3, "mode": "b", "unknown": 1}, wanted) is None


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
KINDS = ["object", "array", "string", "integer", "number", "boolean"]


@given(json_values, st.sampled_from(KINDS))
def test_coercion_never_raises_and_is_stable(value: object, kind: str) -> None:
    once = coerce(value, of(kind))
    assert coerce(once, of(kind)) == once
    violation(once, of(kind))


@given(json_values, st.sampled_from(KINDS))
def test_what_fits_stays_unless_null_is_dropped(value: object, kind: str) -> None:
    if violation(value, of(kind)) is None and kind not in ("object", "array"):
        assert coerce(value, of(kind)) == value


def test_a_whole_number_beyond_floats_is_held_to_its_bounds() -> None:
    huge = 10**400
    assert violation({"n": huge}, schema(n=of("integer", minimum=1))) is None
    assert violation({"n": huge}, schema(n=of("number", maximum=9))) is not None
    assert violation({"n": True}, schema(n=of("number"))) is not None
