import pytest
from hypothesis import given
from hypothesis import strategies as st

from clotho.errors import InvalidInput
from clotho.tools.files.fuzzy import STRATEGIES, find, replace
from clotho.tools.files.matching import Budget
from clotho.tools.files.similarity import block_anchor
from tests.support import cpu_seconds

SLOWEST = 30.0
"""Seconds of CPU."""
CODE = """\
class Greeter:
    def greet(self, name):
        if name:
            print("Hello,  " + name)
        return name

    def leave(self):
        return None
"""


def test_the_strategies_come_in_the_given_order() -> None:
    assert list(STRATEGIES) == [
        "exact",
        "line_trimmed",
        "whitespace_normalized",
        "indentation_flexible",
        "escape_normalized",
        "trimmed_boundary",
        "unicode_normalized",
        "block_anchor",
        "context_aware",
    ]


@pytest.mark.parametrize(
    ("strategy", "text", "old", "new", "expected"),
    [
        ("exact", "a = 1\nb = 2\n", "b = 2", "b = 3", "a = 1\nb = 3\n"),
        (
            "line_trimmed",
            CODE,
            'if name:\n    print("Hello,  " + name)\n',
            'if name:\n    print("Bye, " + name)\n',
            CODE.replace("Hello,  ", "Bye, "),
        ),
        ("line_trimmed", "x = 1   \ny = 2\n", "x = 1\ny = 2", "x = 2\ny = 2", "x = 2\ny = 2\n"),
        (
            "whitespace_normalized",
            CODE,
            'print("Hello, " + name)',
            'print("Bye")',
            CODE.replace('"Hello,  " + name', '"Bye"'),
        ),
        (
            "indentation_flexible",
            CODE,
            'if name:\n    print("Hello, " + name)\nreturn name',
            "return name",
            CODE.replace(
                'if name:\n            print("Hello,  " + name)\n        return name', "return name"
            ),
        ),
        ("escape_normalized", 'a\n\tb = "x"\n', 'a\\n\\tb = \\"x\\"', 'a\\n\\tb = \\"y\\"', 'a\n\tb = "y"\n'),
        ("trimmed_boundary", "f(1)\ng(2)\n", "\n\nf(1)\ng(2)\n\n\n", "\n\nf(3)\ng(2)\n\n\n", "f(3)\ng(2)\n"),
        ("unicode_normalized", "She said “no” — twice…\n", 'said "no" -- twice...', "left", "She left\n"),
        ("unicode_normalized", "a\u00a0b - c−d\n", "a b – c-d", "z", "z\n"),
        (
            "block_anchor",
            "def f(a, b):\n    total = a + b  # sum of the two\n    return total\n",
            "def f(a, b):\n    total = (a + b)  # the sum\n    return total\n",
            "def f(a, b):\n    return a + b\n",
            "def f(a, b):\n    return a + b\n",
        ),
        (
            "context_aware",
            "alpha one\nbeta two\nsomething else entirely\n",
            "alpha one!\nbeta two!\nnot alike",
            "new",
            "new\n",
        ),
    ],
)
def test_each_strategy_finds_what_the_earlier_ones_do_not(
    strategy: str, text: str, old: str, new: str, expected: str
) -> None:
    done = replace(text, old, new)
    assert (done.strategy, done.text, done.count) == (strategy, expected, 1)


def test_a_replacement_takes_the_files_indentation() -> None:
    tabbed = "def f():\n\tif x:\n\t\treturn 1\n"
    done = replace(tabbed, "    if x:\n        return 1", "    if x:\n        return 2\n    return 3")
    assert done.text == "def f():\n\tif x:\n\t\treturn 2\n\treturn 3\n"


def test_a_replacement_that_is_already_indented_right_stays() -> None:
    text = "class A:\n    def f(self):\n        return 1  \n"
    done = replace(text, "def f(self):\nreturn 1", "    def f(self):\n        return 2")
    assert done.text == "class A:\n    def f(self):\n        return 2\n"


def test_the_last_line_may_lack_its_newline() -> None:
    assert replace("a\n  b", "b\n", "c\n", False).text == "a\n  c\n"


def test_several_matches_are_an_error_that_says_where() -> None:
    with pytest.raises(InvalidInput, match=r"Found 3 matches .* lines 1, 2, 4"):
        replace("x\nx\ny\nx\n", "x", "z")
    assert replace("x\nx\ny\nx\n", "x", "z", replace_all=True).text == "z\nz\ny\nz\n"


def test_similar_places_are_never_replaced_all_at_once() -> None:
    text = "value one = 1\nother\nvalue one = 2\n"
    with pytest.raises(InvalidInput, match="only similar"):
        replace(text, "value one = 3", "x", replace_all=True)


def test_anchors_need_more_similarity_where_they_are_not_unique() -> None:
    block = "begin\n    first = compute(alpha)\nend\n"
    other = "begin\n    second = nothing like it\nend\n"
    wanted = "begin\n    first = compute(beta)\nend\n"
    assert replace(other + block, wanted, "gone\n").text == other + "gone\n"
    assert list(block_anchor(block, wanted, Budget())) == [(0, len(block))]
    assert list(block_anchor(other + other, wanted, Budget())) == []


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [("", "x", "empty"), (" \n ", "x", "whitespace"), ("a", "a", "identical"), ("q", "x", "not find")],
)
def test_what_cannot_be_replaced_is_said(old: str, new: str, words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        replace("a b c\n", old, new)


@given(st.text("ab \t\n", max_size=40), st.integers(0, 40), st.integers(1, 10), st.text("cd\n", max_size=5))
def test_exact_matches_are_plain_replacement(text: str, start: int, length: int, new: str) -> None:
    old = text[start : start + length]
    if old.strip():
        assert replace(text, old, new, replace_all=True).text == text.replace(old, new)


@given(st.text(max_size=60), st.text(min_size=1, max_size=20), st.booleans())
def test_matches_lie_in_order_inside_the_text(text: str, old: str, whole: bool) -> None:
    match = find(text, old, Budget(), whole) if old.strip() else None
    end = 0
    for start, stop in match.spans if match else ():
        assert end <= start < stop <= len(text)
        assert not whole or start == 0 or text[start - 1] == "\n"
        end = stop


def test_a_large_file_takes_bounded_time() -> None:
    text = "\n".join(f"line {i} of the file with some words = {i * 7 % 1000}" for i in range(20_000))

    def fail_to_replace() -> None:
        with pytest.raises(InvalidInput):
            replace(text, "\n".join(f"no such {i}" for i in range(500)), "x")
        with pytest.raises(InvalidInput):
            replace(text, "line 5 of the file with same words = 36\nnothing\nat\nall", "x")

    assert cpu_seconds(fail_to_replace, SLOWEST) < SLOWEST


@pytest.mark.parametrize(
    ("text", "old"),
    [
        (" " * 1_000_000 + "\n", "   x"),
        ("a\n" * 300_000, "a\n" * 2_000 + "b"),
        ("\u00a0" * 1_000_000, " " * 20_000 + "x"),
        ("a \t" * 300_000, "a " * 5_000 + "b"),
        ("…" * 300_000, "..x"),
    ],
)
def test_repetitive_text_takes_no_quadratic_time(text: str, old: str) -> None:
    assert find(text, old, Budget()) is None
    assert cpu_seconds(lambda: find(text, old, Budget()), SLOWEST) < SLOWEST


def test_half_an_ellipsis_is_no_match() -> None:
    assert find("a…b", "..b", Budget()) is None
    assert replace("wait… now — go", "wait... now", "stop").text == "stop — go"
