import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clotho.errors import InvalidInput
from clotho.tools.files.diff import unified
from clotho.tools.files.lint import lint
from clotho.tools.files.paths import quoted, refuse_protected
from clotho.tools.files.read_file import window
from clotho.tools.files.search_script import content_result, found_counts, found_files, found_lines
from clotho.tools.files.text_file import TextFile, is_binary


def test_a_window_numbers_its_lines() -> None:
    part = window(b"a\nb\nc\nd\n", 2, 2)
    assert (part.content, part.first, part.last, part.total) == ("     2|b\n     3|c", 2, 3, 4)


def test_a_window_past_the_end_is_empty() -> None:
    assert window(b"a\n", 5, 2).content == "" == window(b"", 1, 10).content
    assert window(b"", 1, 10).total == 0


def test_long_lines_are_cut_and_carriage_returns_not_shown() -> None:
    assert (
        window(b"x" * 2_001 + b"\r\ny\r\n", 1, 2).content == f"     1|{'x' * 2_000}... [truncated]\n     2|y"
    )


@given(st.lists(st.text("ab", max_size=3), max_size=30), st.integers(1, 12))
def test_windows_one_after_another_are_the_whole_file(lines: list[str], limit: int) -> None:
    text = "".join(f"{line}\n" for line in lines)
    shown, offset = [], 1
    while (part := window(text.encode(), offset, limit)).content:
        shown += [line.partition("|")[2] for line in part.content.split("\n")]
        offset = part.last + 1
    assert shown == lines


@given(st.text("ab\n", max_size=30), st.booleans(), st.booleans())
def test_a_text_file_keeps_its_form(text: str, crlf: bool, mark: bool) -> None:
    raw = ((text.replace("\n", "\r\n") if crlf else text), "\ufeff" * mark)
    content = (raw[1] + raw[0]).encode()
    file = TextFile.decoded(content, "x")
    assert file.text == text and file.encoded(file.text) == content


def test_a_line_added_to_a_crlf_file_ends_like_the_others() -> None:
    file = TextFile.decoded(b"a\r\nb\r\n", "x")
    assert file.encoded(file.text + "c\n") == b"a\r\nb\r\nc\r\n"


def test_a_file_with_mixed_line_ends_is_known_as_it_is() -> None:
    mixed = b"a\r\nb\r\nc\n"
    assert TextFile.decoded(mixed, "x").content == mixed


@pytest.mark.parametrize("content", [b"\xff\xfe", b"a\0b"])
def test_what_is_not_text_is_not_edited(content: bytes) -> None:
    with pytest.raises(InvalidInput):
        TextFile.decoded(content, "x")


def test_binary_is_known_by_its_bytes() -> None:
    assert is_binary(b"\x7fELF\0\0") and is_binary(bytes(range(128, 256)))
    assert (
        not is_binary("naïve – 日本\n".encode())
        and not is_binary(b"caf\xe9 in an old encoding\n")
        and not is_binary(b"")
    )


@pytest.mark.parametrize(
    ("path", "text", "status", "words"),
    [
        ("a.py", "x = 1\n", "ok", ""),
        ("a.py", "def f(:\n", "error", "SyntaxError: invalid syntax (line 1)"),
        ("a.PY", "if x:\nreturn\n", "error", "line 2"),
        ("a.json", '{"a": 1}', "ok", ""),
        ("a.json", '{"a": }', "error", "line 1 column 7"),
        ("a.toml", "a = 1", "ok", ""),
        ("a.toml", "a = ", "error", "Invalid value"),
        ("a.txt", "def f(:", "skipped", "no check"),
        ("Makefile", "x", "skipped", "no check"),
        ("a.py", "x = 1\n" * 100_000, "skipped", "too large"),
        ("a.py", "-" * 100_000 + "1", "skipped", "nested too deeply"),
        ("a.json", "[" * 100_000, "skipped", "nested too deeply"),
        ("a.py", "a" + ".a" * 100_000, "skipped", "nested too deeply"),
        ("a.py", "x = '\0'", "error", "null bytes"),
    ],
)
def test_lint_parses_and_never_runs(path: str, text: str, status: str, words: str) -> None:
    found = lint(path, text)
    assert found["status"] == status and words in found["output"]


@pytest.mark.parametrize(
    "path",
    [
        "/etc/passwd",
        "/etc",
        "//etc/passwd",
        "/work/../etc/passwd",
        "/boot/x",
        "/var/run/docker.sock",
        "/proc/self/mem",
        "~/.ssh/authorized_keys",
        "/root/.aws/credentials",
        "/home/agent/.netrc",
    ],
)
def test_protected_paths_are_refused(path: str) -> None:
    with pytest.raises(InvalidInput, match="protected"):
        refuse_protected(path)


@pytest.mark.parametrize(
    "path", ["/work/etc/passwd", "etc/passwd", "/etcetera", "~/notes", "/work/.ssh/x", "/tmp/x"]
)
def test_ordinary_paths_are_not(path: str) -> None:
    refuse_protected(path)


@pytest.mark.parametrize(
    ("path", "word"),
    [
        ("/work/a b", "'/work/a b'"),
        ("-rf", "./-rf"),
        ("~", '"$HOME"'),
        ("~/a'b", "\"$HOME\"/'a'\"'\"'b'"),
        ("$(id)", "'$(id)'"),
    ],
)
def test_paths_are_words_of_a_script(path: str, word: str) -> None:
    assert quoted(path) == word


def test_a_diff_names_files_and_moves() -> None:
    assert unified("x", "a\nb\n", "a\nc\n").splitlines()[:3] == ["--- a/x", "+++ b/x", "@@ -1,2 +1,2 @@"]
    assert unified("x", None, "a\n").startswith("--- /dev/null\n+++ b/x")
    assert unified("x", "a\n", "a\n", "y") == "rename x -> y"
    assert len(unified("x", "a\n" * 50_000, "b\n" * 50_000)) < 21_000


def applied(before: list[str], diff: str) -> list[str]:
    """What a unified diff makes of `before`, by its line numbers alone."""
    after, taken = [], 0
    for line in diff.split("\n")[2:]:
        if line.startswith("@@"):
            first, _, count = line.split()[1][1:].partition(",")
            start = int(first) - (count != "0")
            after += before[taken:start]
            taken = start
        elif line.startswith("+"):
            after.append(line[1:])
        else:
            assert before[taken] == line[1:]
            after += [line[1:]] if line[0] == " " else []
            taken += 1
    return after + before[taken:]


some_lines = st.lists(st.sampled_from(["a", "b", "c", ""]), max_size=25)


@given(some_lines, some_lines, some_lines, some_lines)
def test_a_diff_leads_from_one_version_to_the_other(
    head: list[str], old: list[str], new: list[str], tail: list[str]
) -> None:
    before, after = head + old + tail, head + new + tail
    if before != after:
        assert (
            applied(before, unified("x", *("".join(f"{t}\n" for t in v) for v in (before, after)))) == after
        )


def test_a_small_change_in_a_large_file_is_shown_and_a_large_one_counted() -> None:
    lines = [f"{i}\n" for i in range(200_000)]
    changed = [*lines[:150_000], "new\n", *lines[150_001:]]
    assert "@@ -149998,7 +149998,7 @@" in unified("x", "".join(lines), "".join(changed))
    assert "[200000 lines became 0]" in unified("x", "".join(lines), "")


def test_search_output_is_matches_with_their_context() -> None:
    output = (
        "./a.py\x001-import os\n./a.py\x002:match one: two\n./a.py\x003-after\n./a.py\x004:match\n--\n"
        "./a.py\x009-before\n./a.py\x0010:match\n./b-1.py\x002-lead\n./b-1.py\x003:match\n"
    )
    found = list(found_lines(output))
    assert [(line.path, line.number, line.ordinal, line.matched) for line in found] == [
        ("a.py", 1, 0, False),
        ("a.py", 2, 0, True),
        ("a.py", 3, 0, False),
        ("a.py", 4, 1, True),
        ("a.py", 9, 2, False),
        ("a.py", 10, 2, True),
        ("b-1.py", 2, 3, False),
        ("b-1.py", 3, 3, True),
    ]
    assert found[1].text == "match one: two"
    result = content_result(found, 1, 2)
    assert result["total_count"] == 4 and result["truncated"] and "offset=3" in result["hint"]
    assert [match["line"] for match in result["matches"]] == [4, 9, 10]


def test_search_text_is_cut_and_strange_lines_are_left_out() -> None:
    (line,) = found_lines(f"x\x001:{'y' * 600}\nrg: some words\n")
    assert len(line.text) == 500
    assert found_counts("a\x003\nb\x000\nc\n") == {"a": 3}
    assert found_files("./a b\0c\nd\0cut of") == ["a b", "c\nd"]


def test_a_long_difference_takes_no_multiple_of_the_files_memory() -> None:
    tracemalloc.start()
    try:
        shown = unified("a", "\n" * 4_000_000, None)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert "[4000000 lines became 0]" in shown
    assert peak < 5 * 4_000_000
