import difflib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clotho.errors import InvalidInput
from clotho.tools.files.v4a import Plan, Step, edited, parse, paths, plan

FILES = {
    "a.py": "import os\n\n\ndef f():\n    return 1\n\n\ndef g():\n    return 1\n",
    "b.txt": "one\ntwo\nthree",
}


def made(patch: str, files: dict[str, str] | None = None) -> Plan:
    return plan(parse(patch), (FILES if files is None else files).get)


def written(done: Plan) -> dict[str, str]:
    return {write.path: write.text for write in done.writes}


def test_updates_files() -> None:
    done = made(
        "*** Begin Patch\n*** Update File: a.py\n@@ def g(): @@\n def g():\n-    return 1\n+    return 2\n"
        "*** Update File: b.txt\n one\n-two\n+2\n*** End Patch\n"
    )
    assert written(done) == {"a.py": FILES["a.py"][:-2] + "2\n", "b.txt": "one\n2\nthree"}
    assert done.steps == ()


def test_a_hint_chooses_between_equal_places_and_without_one_they_are_an_error() -> None:
    hunk = "-    return 1\n+    return 7\n"
    done = made(f"*** Update File: a.py\n@@ def g():\n{hunk}")
    assert written(done)["a.py"].endswith("def g():\n    return 7\n")
    with pytest.raises(InvalidInput, match="2 places"):
        made(f"*** Update File: a.py\n{hunk}")


def test_lines_are_matched_whole() -> None:
    done = made("*** Update File: x\n-foo\n+bar\n", {"x": "xfoo\nfoo\n"})
    assert written(done) == {"x": "xfoo\nbar\n"}


def test_lines_without_a_sign_are_context() -> None:
    done = made("*** Update File: x\n@@\nkeep\n-drop\n", {"x": "keep\ndrop\nrest\n"})
    assert written(done) == {"x": "keep\nrest\n"}


def test_pure_additions_go_after_the_hint_or_to_the_end() -> None:
    files = {"x": "a\nb\n"}
    assert written(made("*** Update File: x\n@@ a @@\n+new\n", files)) == {"x": "a\nnew\nb\n"}
    assert written(made("*** Update File: x\n@@\n+new\n", files)) == {"x": "a\nb\nnew\n"}
    assert written(made("*** Update File: x\n+new\n", {"x": ""})) == {"x": "new\n"}


def test_adds_deletes_and_moves_files() -> None:
    done = made(
        "*** Add File: d/new.py\n+x = 1\n+\n+y = 2\n*** Delete File: b.txt\n*** Move File: a.py -> c.py\n"
    )
    assert written(done) == {"d/new.py": "x = 1\n\ny = 2\n"}
    assert done.steps == (Step(path="b.txt"), Step(path="a.py", destination="c.py"))
    assert [(c.path, c.moved_to, c.after is None) for c in done.changes] == [
        ("d/new.py", None, False),
        ("b.txt", None, True),
        ("a.py", "c.py", False),
    ]


def test_an_update_may_move() -> None:
    done = made("*** Update File: b.txt\n*** Move to: c.txt\n-two\n+2\n")
    assert done.steps == (Step(path="b.txt", destination="c.txt"),)
    assert written(done) == {"c.txt": "one\n2\nthree"} and done.writes[0].origin == "b.txt"


def test_later_operations_see_the_earlier_ones() -> None:
    done = made(
        "*** Update File: b.txt\n-two\n+2\n*** Update File: b.txt\n-2\n+zwei\n"
        "*** Add File: n\n+x\n*** Move File: n -> m\n*** Add File: t\n+x\n*** Delete File: t\n"
        "*** Delete File: a.py\n*** Add File: a.py\n+new\n"
    )
    assert written(done) == {"b.txt": "one\nzwei\nthree", "m": "x\n", "a.py": "new\n"}
    assert done.steps == (Step(path="a.py"),)


@pytest.mark.parametrize(
    ("patch", "words"),
    [
        ("", "no '\\*\\*\\* Update"),
        ("hello", "patch line 1"),
        ("*** Update File: a.py\n", "changes nothing"),
        ("*** Update File: a.py\n@@ def f():\n def f():\n", "changes nothing"),
        ("*** Update File: nope\n-x\n", "nope: no such file"),
        ("*** Delete File: nope\n", "nope: no such file"),
        ("*** Add File: a.py\n+x\n", "exists already"),
        ("*** Move File: a.py -> b.txt\n", "exists already"),
        ("*** Move File: a.py\n", "old path -> new path"),
        ("*** Add File: n\n-x\n", r"begin with '\+'"),
        ("*** Delete File: b.txt\n+x\n", "takes no lines"),
        (
            "*** Update File: b.txt\n-two\n+2\n*** Update File: a.py\n-absent line of text\n",
            "could not find the lines",
        ),
    ],
)
def test_a_patch_that_cannot_be_applied_whole_is_not_applied(patch: str, words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        made(patch)


def test_long_blank_lines_take_no_quadratic_time() -> None:
    gap = " " * 200_000
    with pytest.raises(InvalidInput):
        made(f"*** Update File:{gap}x{gap}\n@@{gap}x{gap}@@x\n-a{gap}b\n")


def test_blank_lines_between_operations_belong_to_none() -> None:
    done = made(
        "*** Update File: b.txt\n one\n-two\n+2\n\n\n*** Delete File: a.py\n\n*** Add File: n\n+x\n\n"
    )
    assert written(done) == {"b.txt": "one\n2\nthree", "n": "x\n"}


def test_blank_lines_within_a_hunk_are_context() -> None:
    done = made("*** Update File: x\n a\n\n-b\n+c\n", {"x": "a\n\nb\n"})
    assert written(done) == {"x": "a\n\nc\n"}


def test_text_is_needed_of_what_is_edited_under_any_name() -> None:
    patch = "*** Move File: a -> b\n*** Move File: b -> c\n*** Update File: c\n-x\n+y\n*** Delete File: d\n"
    assert edited(parse(patch)) == {"a", "b", "c"}


def test_paths_are_named_once() -> None:
    assert paths(parse("*** Move File: a -> b\n*** Delete File: b\n*** Delete File: c\n")) == ["a", "b", "c"]


line = st.text("abcdef{}()=+- *@", max_size=12)
lines = st.lists(line, max_size=12)


@given(lines, lines)
def test_a_patch_made_from_two_versions_leads_from_one_to_the_other(
    before: list[str], after: list[str]
) -> None:
    unified = list(difflib.unified_diff(before, after, n=100, lineterm=""))[3:]
    if not unified:
        return
    old, new = ("".join(f"{text}\n" for text in version) for version in (before, after))
    done = made(
        "*** Begin Patch\n*** Update File: x\n@@\n" + "\n".join(unified) + "\n*** End Patch", {"x": old}
    )
    assert written(done) == {"x": new}
