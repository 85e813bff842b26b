import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clotho.untrusted import (
    MAX_NESTING,
    Excessive,
    Unreadable,
    ValueCount,
    load_json,
    load_toml,
    load_yaml,
)
from tests.support import cpu_seconds

SLOWEST = 1.0
N = "9" * 5_000
MERGES = "a0: &a0 {x: 1}\n" + "".join(f"a{n}: &a{n} {{<<: [*a{n - 1}, *a{n - 1}]}}\n" for n in range(1, 24))

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(alphabet='a"\\[]{},\n='),
    lambda inner: (
        st.lists(inner, max_size=5) | st.dictionaries(st.text(alphabet='a"\\[,.'), inner, max_size=5)
    ),
    max_leaves=20,
)


@pytest.mark.parametrize(
    ("load", "text"),
    [
        (load_yaml, MERGES),
        (load_yaml, "a: &a [1]\nb: *a"),
        (load_yaml, "a: {<<: {b: 1}}"),
        (load_yaml, "[" * 50_000),
        (load_yaml, "- " * 40_000),
        (load_yaml, "a: b\n" * 30_000),
        (load_toml, "a." * 40_000 + "a=1"),
        (load_toml, "a=" + "[" * 40_000),
        (load_toml, "a = [" + "{a = [" * 10_000),
        (load_toml, "'a'." * 20_000 + "a=1"),
        (load_json, "[" * 1_000_000),
        (load_json, "[" * (MAX_NESTING + 1) + "]" * (MAX_NESTING + 1)),
        (load_json, '{"a":' * 1_000_000),
        (load_json, "[" + "1," * 1_000_000 + "1]"),
        (load_json, '"\\"' * 1_000_000),
    ],
    ids=lambda value: value[:12] if isinstance(value, str) else value.__name__,
)
def test_texts_that_are_more_than_they_seem_are_refused_at_once(
    load: Callable[[str], Any], text: str
) -> None:
    def refused() -> None:
        with pytest.raises(Unreadable):
            load(text)

    assert cpu_seconds(refused, SLOWEST) < SLOWEST


@pytest.mark.parametrize(
    "text",
    [
        "!!bool x",
        "!!int ''",
        "!!timestamp x",
        "!!binary x",
        "2020-99-99",
        "? [a]\n: b",
        "\0",
        "a\n---\nb",
        "9" * 5_000,
    ],
)
def test_values_that_their_tags_do_not_fit_are_unreadable(text: str) -> None:
    with pytest.raises(Unreadable):
        load_yaml(text)


@pytest.mark.parametrize("text", ["NaN", "[Infinity]", "{", "9" * 5_000, "", b"\xff"])
def test_what_is_no_json_is_unreadable(text: str | bytes) -> None:
    with pytest.raises(Unreadable):
        load_json(text)


@given(values)
def test_json_is_read_as_it_was_written(value: Any) -> None:
    assert load_json(json.dumps(value)) == value == load_json(json.dumps(value).encode())


def test_brackets_and_commas_in_strings_are_no_structure() -> None:
    text = "[" * 1_000 + "," * 1_000
    assert load_json(json.dumps([text, '"' + text]), most_values=3) == [text, '"' + text]
    assert load_toml(f'a = \'{text}\'\nb = """\n"{text}"""\nc = 1 # {text}')["a"] == text
    dotted = "a." * 1_000
    assert load_toml(f"a = '{dotted}'\nb.'{dotted}' = [{'1.5, ' * 200}]")["a"] == dotted


@given(values, st.data())
def test_values_are_counted_alike_in_any_pieces(value: Any, data: st.DataObject) -> None:
    text = json.dumps(value, indent=data.draw(st.none() | st.just(1))).encode()
    whole = load_json(text)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=6)))
    pieces = [text[start:end] for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True)]

    def fits(most: int) -> bool:
        count = ValueCount(most)
        try:
            for piece in pieces:
                count.feed(piece)
            load_json(text, most)
        except Excessive:
            return False
        return True

    least = next(most for most in range(1_000) if fits(most))
    assert load_json(text, least) == whole
    if least:
        with pytest.raises(Excessive):
            load_json(text, least - 1)
        with pytest.raises(Excessive):
            count = ValueCount(least - 1)
            for piece in pieces:
                count.feed(piece)


def test_a_line_of_no_json_does_not_hide_those_after_it() -> None:
    count = ValueCount(3)
    count.feed(b': it"s a comment \\\n')
    with pytest.raises(Excessive):
        count.feed(b"data: [1,2,3,4]")
