"""Texts of models as HTML: what is rendered, what never is, and what is too much."""

import json
import time
from html.parser import HTMLParser

import pytest
from markupsafe import Markup

from clotho.models.messages import FunctionCall, ToolCall
from clotho.plugins.viewer import markup
from clotho.plugins.viewer.calls import Calls, Part
from clotho.plugins.viewer.markup import CLIPPED_CHARACTERS, DEEPEST, LANGUAGES, LONGEST_LINE, Texts
from clotho.plugins.viewer.rollout import CallView
from tests.viewer.gallery import AFTER, ASKED, BEFORE, FAILED, answer

FREE_SECONDS = 5.0
"""CPU time that no text takes, however slow the machine: bounds are a tenth of it."""


def markdown(text: str) -> str:
    """Rendered without hurry: the first text of a language loads its lexer, which takes a busy machine a while."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(markup, "TEXT_SECONDS", FREE_SECONDS)
        patch.setattr(markup, "PAGE_SECONDS", FREE_SECONDS)
        rendered = Texts().markdown(text)
    assert rendered is not None
    return str(rendered)


ALLOWED = {"p", "pre", "code", "span", "a", "small", "br", "em", "table", "thead", "tbody", "tr", "th", "td"}


class Tags(HTMLParser):
    """The tags of a piece of HTML, with their attributes."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, list[tuple[str, str | None]]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, attrs))


def test_markdown_is_rendered_as_people_read_it() -> None:
    html = markdown(ASKED)
    assert "<h4>Fix the parser</h4>" in html and "<strong>90</strong>" in html and "<td>3600</td>" in html
    assert '<span class="h-k">def</span> <span class="h-f">test_hours_and_minutes</span>' in html
    assert "style=" not in html


@pytest.mark.attack(
    "records", "Markdown with HTML, scripts, images and links that would act or load something"
)
@pytest.mark.parametrize(
    "text",
    [
        "<script>alert(1)</script> <img src=x onerror=alert(1)>",
        "<div\nonclick=alert(1)>\n\n</div><!-- --><?php ?><![CDATA[x]]>",
        "[press](javascript:alert(1)) [press](JaVaScRiPt&colon;alert(1)) <javascript:alert(1)>",
        "[press](data:text/html;base64,PHNjcmlwdD4=) [press](vbscript:x) [press](file:///etc/passwd)",
        "[press](/confirm/cancel/run) [press](//elsewhere.example/x) [press](http:/operate) [press](#x)",
        '[press](<http://a.example/"onclick="alert(1)> "a title\' onclick=alert(1)")',
        "![x](http://elsewhere.example/x.png) [![x](http://elsewhere.example/x.png)](javascript:x)",
        '![" onerror="alert(1)](javascript:x) ![x][1]\n\n[1]: http://elsewhere.example/x.png',
        '```"><script>alert(1)</script>\n<script>alert(1)</script>\n```',
        "```html\n<script>alert(1)</script><img src=x onerror=alert(1)>\n```",
        "```diff\n--- a/<b>\n+++ b/<script>.html\n@@ <i> @@\n+<script>alert(1)</script>\n```",
        "| <b>a</b> | b |\n|:-|-:|\n| <script>x</script> | ![x](http://elsewhere.example/x.png) |",
        "&lt;script&gt; &#x202e;evil &#27;[31m \u202egnp \x1b[2J &#0;",
    ],
)
def test_hostile_markdown_becomes_text(text: str) -> None:
    found = Tags()
    html = markdown(text)
    found.feed(html)
    assert {name for name, _ in found.tags} <= ALLOWED, html
    attributes = [attribute for _, attributes in found.tags for attribute in attributes]
    assert {name for name, _ in attributes} <= {"class", "title", "href", "rel"}, html
    addresses = [value or "" for name, value in attributes if name == "href"]
    assert all(address.startswith(("http://", "https://")) for address in addresses), html
    assert not {"\x00", "\x1b", "\u202e"} & set(html)


def test_a_link_shows_the_site_that_it_leads_to() -> None:
    html = markdown("[https://good.example](https://evil.example/x)")
    assert 'rel="noreferrer noopener nofollow"' in html and '<small class="site">evil.example</small>' in html


LINES = CLIPPED_CHARACTERS // LONGEST_LINE
HUGE = {
    "quotations": "> " * 6_000,
    "lists": "\n".join("  " * depth + "- a" for depth in range(2 * DEEPEST)),
    "brackets": "[" * 6_000 + "]" * 6_000,
    "images": "![" * 6_000,
    "stars": "*a **a " * 1_700,
    "ticks": "".join("`" * count + " " for count in range(150)),
    "columns": "|a" * 200 + "\n" + "|-" * 200 + "\n" + "|\n" * 5_000,
    "references": "[a\n" * 4_000,
    "entities": "&" * 12_000,
}


@pytest.mark.parametrize("kind", HUGE)
def test_huge_and_deep_markdown_takes_bounded_time(kind: str) -> None:
    texts, begun = Texts(), time.thread_time()
    rendered = texts.markdown(HUGE[kind])
    assert time.thread_time() - begun < FREE_SECONDS
    assert rendered is None or len(rendered) < 10 * CLIPPED_CHARACTERS
    if kind in ("quotations", "lists", "brackets", "images", "columns"):
        assert rendered is None


@pytest.mark.parametrize("language", LANGUAGES)
def test_hostile_code_takes_bounded_time(language: str) -> None:
    for piece in ('"', "'''", "/*", "(", "{", "\\", "a=", "<a ", "${", "#", "`", 'f"{', "<<E\n", "0.", "- "):
        code = "\n".join([(piece * LONGEST_LINE)[:LONGEST_LINE]] * LINES)
        begun = time.thread_time()
        Texts().code(code, language)
        assert time.thread_time() - begun < FREE_SECONDS, piece


def test_what_is_beyond_the_bounds_of_a_page_is_not_rendered(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = Texts()
    rendered = [texts.markdown("a *b* " * 1_900) is not None for _ in range(50)]
    assert rendered[0] and not rendered[-1]
    monkeypatch.setattr(markup, "PAGE_SECONDS", 0.0)
    assert Texts().markdown("*a*") is None


def call(tool: str, arguments: dict[str, object], exit_code: int | None = None, **result: object) -> CallView:
    function = FunctionCall(name=tool, arguments=json.dumps(arguments))
    return CallView("key", ToolCall(id="c", function=function), answer(tool, 0, exit_code, **result))


def changed(part: Part) -> list[str]:
    """The lines that a diff shows as added and removed."""
    assert part.shown is not None
    lines = part.shown.split('<span class="line ')[1:]
    return [
        f"{line[:3]} {Markup(line.partition('>')[2]).striptags()}"
        for line in lines
        if line[:3] in ("add", "del")
    ]


def test_calls_that_edit_files_are_shown_as_diffs() -> None:
    calls = Calls(Texts())
    path = {"path": "/work/duration.py"}
    shown = calls.show(call("write_file", {**path, "content": BEFORE}, bytes_written=3))
    assert shown.arguments is not None
    assert [part.name for part in shown.arguments] == ["path", "change"]
    assert len(changed(shown.arguments[-1])) == BEFORE.count("\n")
    again = calls.show(call("write_file", {**path, "content": AFTER}, bytes_written=3))
    assert again.arguments is not None
    assert [line[:3] for line in changed(again.arguments[-1])] == ["add", "del", "add"]
    failed = call(
        "patch", {**path, "mode": "replace", "old_string": "one", "new_string": "two"}, error="no match"
    )
    patched = calls.show(failed)
    assert patched.arguments is not None and patched.result is not None
    assert changed(patched.arguments[-1]) == ["del -one", "add +two"]
    assert [(part.name, part.short) for part in patched.result] == [("error", "no match")]
    made = call(
        "patch", {"patch": "*** Begin Patch"}, success=True, diff="--- a/x\n+++ b/x\n@@ -1 +1 @@\n-1\n+2"
    )
    applied = calls.show(made)
    assert applied.arguments is not None and applied.result is not None
    assert changed(applied.arguments[-1]) == ["del -1", "add +2"]
    assert [part.name for part in applied.result] == ["success"]


def test_other_calls_are_shown_field_by_field() -> None:
    view = call("terminal", {"command": "ls -l", "timeout": 5}, exit_code=1, output=FAILED, error=None)
    shown = Calls(Texts()).show(view)
    assert shown.arguments is not None and shown.result is not None
    command, timeout = shown.arguments
    assert command.shown is not None and timeout.short == "5"
    assert [(part.name, part.text) for part in shown.result] == [("output", FAILED)]
    silent = Calls(Texts()).show(call("terminal", {"command": "true"}, exit_code=0, output="", error=None))
    assert silent.result == []
    broken = CallView("key", ToolCall(id="c", function=FunctionCall(name="x", arguments='{"a"')), None)
    assert Calls(Texts()).show(broken).arguments is None
    deep = FunctionCall(name="x", arguments="[" * 100_000)
    assert Calls(Texts()).show(CallView("key", ToolCall(id="c", function=deep), None)).arguments is None
