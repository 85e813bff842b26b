import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, cast

import pytest

from clotho.errors import SandboxUnavailable
from clotho.sandbox.backend import SandboxInstance, SandboxSpec
from clotho.sandbox.local.backend import LocalBackend
from clotho.tools.files import search_script
from clotho.tools.tool import ToolSettings
from tests.sandbox.tool_calls import Calls
from tests.support import PATIENCE_SECONDS


@pytest.fixture
async def call(folder: Path, request: pytest.FixtureRequest) -> AsyncIterator[Calls]:
    backend, lease = LocalBackend(folder / "tool-sandboxes"), f"tools/{request.node.name}"
    yield Calls(await backend.create(lease, SandboxSpec()))
    await backend.destroy(lease)


async def content(call: Calls, path: str) -> bytes | None:
    found = await call.sandbox.read_file(path, 10**7)
    return None if found.error == "not_found" else found.content


class Interrupted:
    """A sandbox that stops answering before write number `writes`, as where a worker dies half-way."""

    def __init__(self, sandbox: SandboxInstance, writes: int) -> None:
        self._sandbox = sandbox
        self._writes = writes

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sandbox, name)

    async def write_file(
        self, path: str, content: bytes, after: str | None = None, key: str | None = None
    ) -> str:
        if self._writes == 0:
            raise SandboxUnavailable("interrupted")
        self._writes -= 1
        return await self._sandbox.write_file(path, content, after, key)


async def interrupt(call: Calls, after_writes: int, tool: str, **arguments: Any) -> None:
    whole = call.sandbox
    call.sandbox = cast(SandboxInstance, Interrupted(whole, after_writes))
    with pytest.raises(SandboxUnavailable):
        await call(tool, **arguments)
    call.sandbox = whole


# ---- read_file and write_file ----


async def test_what_is_written_is_read(call: Calls) -> None:
    written = await call("write_file", path="a/b/x.py", content="x = 1\nprint('é')\n")
    assert written == {"bytes_written": 18, "dirs_created": True, "lint": {"status": "ok", "output": ""}}
    assert await content(call, "/work/a/b/x.py") == "x = 1\nprint('é')\n".encode()
    read = await call("read_file", path="a/b/x.py")
    assert read["content"] == "     1|x = 1\n     2|print('é')"
    assert (read["total_lines"], read["file_size"], read["truncated"]) == (2, 18, False)
    again = await call("write_file", path="a/b/x.py", content="def f(:\n")
    assert again["dirs_created"] is False and again["lint"]["status"] == "error"


async def test_a_second_attempt_at_writing_says_the_same(call: Calls) -> None:
    arguments = {"path": "new/dir/x", "content": "y"}
    assert await call("write_file", **arguments) == await call.again("write_file", **arguments)


async def test_relative_paths_start_where_the_shell_is(call: Calls) -> None:
    await call.shell("mkdir -p sub && cd sub")
    await call("write_file", path="x", content="here")
    assert await content(call, "/work/sub/x") == b"here"
    assert (await call("read_file", path="./x"))["content"] == "     1|here"
    assert await call.shell("cat ../sub/x") == "here"


async def test_relative_paths_start_in_the_configured_directory_before_any_command(call: Calls) -> None:
    call.settings = ToolSettings(terminal_cwd="/tmp")
    await call("write_file", path="x", content="here")
    assert await content(call, "/tmp/x") == b"here"


async def test_tilde_is_home(call: Calls) -> None:
    await call("write_file", path="~/notes/x", content="here")
    assert await call.shell("cat ~/notes/x") == "here"


async def test_protected_and_unwritable_paths_are_refused(call: Calls) -> None:
    assert "protected" in (await call("write_file", path="/etc/passwd", content="x"))["error"]
    assert "protected" in (await call("write_file", path="~/.ssh/id", content="x"))["error"]
    for path in ("/usr/bin/x", "/nowhere/x", "/work"):
        result = await call("write_file", path=path, content="x")
        assert result["error"] and "bytes_written" not in result
    assert call.dispatched.failure is None


async def test_a_window_of_a_long_file(call: Calls) -> None:
    await call.shell("seq 3000 > long")
    read = await call("read_file", path="long")
    assert read["content"].endswith("   500|500") and read["truncated"]
    assert read["hint"] == "Use offset=501 to go on (lines 1-500 of 3000)"
    most = await call("read_file", path="long", offset=900, limit=99_999)
    assert most["content"].startswith("   900|900\n") and most["content"].endswith("  2899|2899")
    past = await call("read_file", path="long", offset=4_000)
    assert (past["content"], past["hint"]) == ("", "The file has 3000 lines")


async def test_too_much_text_at_once_is_an_error(call: Calls) -> None:
    await call.shell("for i in $(seq 300); do head -c 1000 /dev/zero | tr '\\0' x; echo; done > wide")
    assert "over the maximum of 100,000" in (await call("read_file", path="wide"))["error"]
    assert "error" not in await call("read_file", path="wide", limit=90)


async def test_a_read_is_not_spilled_by_its_size(call: Calls) -> None:
    await call.shell("for i in $(seq 90); do head -c 1000 /dev/zero | tr '\\0' x; echo; done > wide")
    call.settings = ToolSettings(max_result_chars=5_000)
    assert len((await call("read_file", path="wide"))["content"]) > 90_000


async def test_what_is_no_text_is_said(call: Calls) -> None:
    await call.shell(
        "printf 'a\\0b' > binary; cp binary x.png; mkdir d; mkfifo pipe; printf '' > empty; echo x > no; chmod 0 no"
    )
    binary = await call("read_file", path="binary")
    assert binary["is_binary"] and not binary["is_image"] and binary["file_size"] == 3
    assert (await call("read_file", path="x.png"))["is_image"]
    assert "directory" in (await call("read_file", path="d"))["error"]
    assert "regular" in (await call("read_file", path="pipe"))["error"]
    assert "denied" in (await call("read_file", path="no"))["error"]
    assert (await call("read_file", path="empty"))["total_lines"] == 0


async def test_a_missing_file_is_answered_with_similar_ones(call: Calls) -> None:
    await call.shell("mkdir src; touch src/config.py src/Config.yml src/other.txt")
    result = await call("read_file", path="src/confg.py")
    assert result["error"] == "File not found: src/confg.py"
    assert result["similar_files"][0] == "src/config.py" and "src/other.txt" not in result["similar_files"]
    assert (await call("read_file", path="none/x"))["similar_files"] == []


# ---- patch ----

SOURCE = "def f(a):\n    return a\n\n\ndef g(a):\n    return a + 1\n"


async def test_replacing_shows_a_diff_and_a_syntax_check(call: Calls) -> None:
    await call("write_file", path="x.py", content=SOURCE)
    result = await call(
        "patch", mode="replace", path="x.py", old_string="return a + 1", new_string="return a + (2"
    )
    assert result["success"] and result["files_modified"] == ["x.py"]
    assert "-    return a + 1\n+    return a + (2" in result["diff"]
    assert result["lint"]["status"] == "error" and "line 6" in result["lint"]["output"]
    assert await content(call, "x.py") == SOURCE.replace("a + 1", "a + (2").encode()


async def test_mode_and_permissions_and_line_ends_stay(call: Calls) -> None:
    await call.shell("printf 'a\\r\\nb\\r\\n' > x; chmod 755 x")
    assert (await call("patch", mode="replace", path="x", old_string="a\nb", new_string="a\nc\nd"))["success"]
    assert await content(call, "x") == b"a\r\nc\r\nd\r\n"
    assert await call.shell("stat -c %a x") == "755\n"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"mode": "replace", "path": "x"}, "needs old_string"),
        ({"mode": "patch"}, "needs patch"),
        ({"mode": "replace", "path": "none", "old_string": "a", "new_string": "b"}, "no such file"),
        ({"mode": "replace", "path": "x", "old_string": "zzzzzz", "new_string": "b"}, "Could not find"),
        ({"mode": "replace", "path": "x", "old_string": "a", "new_string": "b"}, "Found 2 matches"),
        ({"mode": "replace", "path": "d", "old_string": "a", "new_string": "b"}, "is directory"),
        ({"mode": "replace", "path": "bin", "old_string": "a", "new_string": "b"}, "not UTF-8"),
        ({"mode": "replace", "path": "/etc/passwd", "old_string": "a", "new_string": "b"}, "protected"),
        ({"mode": "replace", "path": "ro", "old_string": "a", "new_string": "b"}, "denied"),
    ],
)
async def test_a_patch_that_cannot_be_made_changes_nothing(
    call: Calls, arguments: dict[str, Any], words: str
) -> None:
    await call.shell("printf 'a\\na\\n' > x; mkdir d; printf '\\377' > bin; printf a > ro; chmod 444 ro")
    result = await call("patch", **arguments)
    assert result["success"] is False and words in result["error"] and "diff" not in result
    assert await content(call, "x") == b"a\na\n" and await content(call, "ro") == b"a"


PATCH = """\
*** Begin Patch
*** Update File: a.py
@@ def g(a): @@
 def g(a):
-    return a + 1
+    return a + 2
*** Add File: new/n.txt
+fresh
*** Delete File: old.txt
*** Move File: run.sh -> bin/run.sh
*** Update File: moved.txt
*** Move to: there.txt
-one
+two
*** End Patch
"""


async def prepare(call: Calls) -> None:
    await call("write_file", path="a.py", content=SOURCE)
    await call.shell(
        "echo x > old.txt; printf '#!/bin/sh\\n' > run.sh; chmod 755 run.sh; echo one > moved.txt"
    )


async def assert_patched(call: Calls) -> None:
    assert await content(call, "a.py") == SOURCE.replace("+ 1", "+ 2").encode()
    assert await content(call, "new/n.txt") == b"fresh\n" and await content(call, "there.txt") == b"two\n"
    assert await call.shell("ls; stat -c %a bin/run.sh") == "a.py\nbin\nnew\nthere.txt\n755\n"


async def test_a_v4a_patch_changes_several_files(call: Calls) -> None:
    await prepare(call)
    result = await call("patch", mode="patch", patch=PATCH)
    assert (
        result["success"]
        and result["files_created"] == ["new/n.txt"]
        and result["files_deleted"] == ["old.txt"]
    )
    assert result["files_modified"] == ["a.py", "bin/run.sh", "there.txt"]
    assert "rename run.sh -> bin/run.sh" in result["diff"] and result["lint"]["a.py"]["status"] == "ok"
    await assert_patched(call)


async def test_a_v4a_patch_is_all_or_nothing(call: Calls) -> None:
    await prepare(call)
    result = await call("patch", mode="patch", patch=PATCH.replace("-one", "-absent line of text"))
    assert not result["success"] and "moved.txt" in result["error"]
    assert await content(call, "a.py") == SOURCE.encode() and await content(call, "old.txt") == b"x\n"


async def test_a_second_attempt_at_a_finished_patch_says_the_same(call: Calls) -> None:
    await prepare(call)
    assert await call("patch", mode="patch", patch=PATCH) == await call.again(
        "patch", mode="patch", patch=PATCH
    )
    await assert_patched(call)


@pytest.mark.parametrize("writes", [0, 1, 2])
async def test_an_interrupted_patch_is_finished_by_the_next_attempt(call: Calls, writes: int) -> None:
    await prepare(call)
    await interrupt(call, writes, "patch", mode="patch", patch=PATCH)
    assert (await call.again("patch", mode="patch", patch=PATCH))["success"]
    await assert_patched(call)


async def test_a_replacement_is_made_once_whatever_attempt_asks(call: Calls) -> None:
    await call("write_file", path="x", content="a\n")
    arguments = {"mode": "replace", "path": "x", "old_string": "a", "new_string": "aa"}
    first = await call("patch", **arguments)
    assert await call.again("patch", **arguments) == first
    assert await content(call, "x") == b"aa\n"


@pytest.mark.parametrize("tool", ["write_file", "patch"])
async def test_what_was_written_is_not_written_again_over_what_came_after(call: Calls, tool: str) -> None:
    await call.sandbox.write_file("x", b"a\n")
    replacement = {"mode": "replace", "old_string": "a", "new_string": "b"}
    arguments = {"path": "x", **(replacement if tool == "patch" else {"content": "b\n"})}
    first = await call(tool, **arguments)
    await call.sandbox.write_file("x", b"b\nlater\n")
    assert await call.again(tool, **arguments) == first
    assert await content(call, "x") == b"b\nlater\n"


async def test_a_change_by_somebody_else_between_attempts_is_not_overwritten(call: Calls) -> None:
    await call("write_file", path="x", content="a\n")
    arguments = {"mode": "replace", "path": "x", "old_string": "a", "new_string": "b"}
    await interrupt(call, 0, "patch", **arguments)
    await call.sandbox.write_file("x", b"other\n")
    result = await call.again("patch", **arguments)
    assert not result["success"] and "changed by another process" in result["error"]
    assert await content(call, "x") == b"other\n"


async def test_what_is_no_text_is_moved_and_deleted_but_not_edited(call: Calls) -> None:
    await call.shell("printf '\\377\\0' | tee a b > /dev/null; head -c 6000000 /dev/zero > large")
    result = await call("patch", mode="patch", patch="*** Move File: a -> c\n*** Delete File: large\n")
    assert result["success"] and await content(call, "c") == b"\xff\0"
    refused = await call("patch", mode="patch", patch="*** Update File: b\n+x\n*** Delete File: c\n")
    assert "not UTF-8" in refused["error"] and await call.shell("ls") == "b\nc\n"


async def test_patches_follow_the_shell(call: Calls) -> None:
    await call.shell("mkdir sub; cd sub; echo a > x; echo b > y")
    assert (await call("patch", mode="patch", patch="*** Update File: x\n-a\n+c\n*** Delete File: y\n"))[
        "success"
    ]
    assert await call.shell("pwd; ls; cat x") == "/work/sub\nx\nc\n"


# ---- search_files ----

TREE = """\
mkdir -p src/deep .hidden
printf 'import os\\nNeedle one\\nafter\\n' > src/a.py
printf 'needle two: 3\\n' > 'src/deep/b c.txt'
printf 'needle\\n' | tee .hidden/x src/.secret > /dev/null
printf 'bin\\0 needle\\n' > src/data.bin
head -c 900 /dev/zero | tr '\\0' y > src/wide; printf ' needle\\n' >> src/wide
touch -d 2001-01-01 src/a.py; touch -d 2002-01-01 'src/deep/b c.txt'; touch -d 2003-01-01 src/wide src/data.bin
"""


def without_ripgrep(script: Callable[..., str]) -> Callable[..., str]:
    return lambda *arguments: script(*arguments).replace("command -v rg ", "false ")


@pytest.fixture(params=["ripgrep", "grep"])
async def search(call: Calls, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Calls:
    """Calls in a small tree, searched with and without ripgrep."""
    if request.param == "grep":
        for script in (search_script.content_script, search_script.files_script):
            monkeypatch.setattr(search_script, script.__name__, without_ripgrep(script))
    await call.shell(TREE)
    return call


async def test_searches_content(search: Calls) -> None:
    result = await search("search_files", pattern="[nN]eedle \\w+")
    assert [(m["path"], m["line"], m["content"]) for m in result["matches"]] == [
        ("src/a.py", 2, "Needle one"),
        ("src/deep/b c.txt", 1, "needle two: 3"),
    ] and result["total_count"] == 2


async def test_searches_with_context_glob_and_paging(search: Calls) -> None:
    around = await search("search_files", pattern="Needle", path="src", context=1)
    assert [(m["line"], m["content"]) for m in around["matches"]] == [
        (1, "import os"),
        (2, "Needle one"),
        (3, "after"),
    ]
    by_glob = await search("search_files", pattern="(?i)needle", file_glob="*.txt")
    assert [m["path"] for m in by_glob["matches"]] == ["src/deep/b c.txt"]
    page = await search("search_files", pattern="(?i)needle", limit=1, offset=1)
    assert page["total_count"] == 3 and len(page["matches"]) == 1 and "offset=2" in page["hint"]


async def test_searches_for_counts_and_file_names(search: Calls) -> None:
    counted = await search("search_files", pattern="needle", output_mode="count")
    assert counted == {"total_count": 2, "counts": {"src/deep/b c.txt": 1, "src/wide": 1}}
    only = await search("search_files", pattern="needle", output_mode="files_only")
    assert sorted(only["files"]) == ["src/deep/b c.txt", "src/wide"]


async def test_finds_files_latest_first(search: Calls) -> None:
    every = await search("search_files", pattern="*", target="files")
    assert every["files"][2:] == ["src/deep/b c.txt", "src/a.py"] and every["total_count"] == 4
    assert (await search("search_files", pattern="*.py", target="files"))["files"] == ["src/a.py"]
    assert (await search("search_files", pattern="b c", target="files"))["files"] == ["src/deep/b c.txt"]


async def test_one_file_and_odd_paths_are_searched(search: Calls) -> None:
    one = await search("search_files", pattern="two", path="src/deep/b c.txt")
    assert [m["content"] for m in one["matches"]] == ["needle two: 3"]
    await search.shell("mkdir -- '-odd $(id)'; echo needle > '-odd $(id)/f'; cd src")
    odd = await search("search_files", pattern="needle", path="/work/-odd $(id)")
    assert [m["path"] for m in odd["matches"]] == ["/work/-odd $(id)/f"]
    here = await search("search_files", pattern="Needle")
    assert [m["path"] for m in here["matches"]] == ["a.py"]


async def test_searches_that_fail_say_why(search: Calls) -> None:
    assert "Path not found: none" in (await search("search_files", pattern="x", path="none"))["error"]
    assert "Search failed" in (await search("search_files", pattern="(unclosed"))["error"]
    assert (await search("search_files", pattern="no such thing"))["matches"] == []
    assert (await search("search_files", pattern="*.none", target="files"))["files"] == []


async def test_the_shells_own_path_is_not_needed(search: Calls) -> None:
    await search.shell("export PATH=/nowhere")
    assert (await search("search_files", pattern="Needle"))["total_count"] == 1


async def test_long_matches_are_cut(call: Calls) -> None:
    await call.shell("head -c 100000 /dev/zero | tr '\\0' y > wide; echo needle >> wide")
    (match,) = (await call("search_files", pattern="needle"))["matches"]
    assert len(match["content"]) <= 500


async def test_hostile_file_names_stay_data(call: Calls) -> None:
    name = "a\nb"
    await call.sandbox.write_file(name, b"needle\n")
    await asyncio.wait_for(call("search_files", pattern="needle"), PATIENCE_SECONDS)
    assert (await call("search_files", pattern="a*", target="files"))["files"] == [name]
