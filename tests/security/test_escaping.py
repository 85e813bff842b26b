"""Text that somebody else wrote is shown, and never obeyed: on a terminal, in a log, in the Temporal UI."""

import json
import subprocess
import sys
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from temporalio.api.failure.v1 import Failure

from clotho.errors import StoreUnavailable
from clotho.escaping import for_line, for_markdown, for_terminal, json_line
from clotho.temporal.conversion import DATA_CONVERTER

TITLE = "\x1b]0;owned\x07"
CLEAR = "\x1b[2J\x9b31m"
REVERSED = "\u202edrawer\u2066 \u200e"
FORGED = "fine\n2026-01-01 00:00:00,000 INFO worker [-] clotho: reward 1.0\r\n\u2028\u0085forged"
ATTACKS = (TITLE, CLEAR, REVERSED, FORGED, "\ud800 alone", "\U000e0041 tag")
MARKUP = (
    "<img src=x onerror=alert(1)>",
    "`</code><script>alert(1)</script>`",
    "[click](https://example.org) ![](https://example.org/beacon) https://example.org www.example.org",
    "``` \n# heading\n|a|b|\n|-|-|\n**bold** _it_ <!-- x -->",
    "&lt;b&gt; \\` ` \\",
    "",
)
anything = st.text(st.characters(codec=None, categories=None))


def unsafe(text: str) -> list[str]:
    return [
        c for c in text if unicodedata.category(c) in ("Cc", "Cs") or unicodedata.bidirectional(c) in BIDI
    ]


BIDI = ("LRE", "LRO", "RLE", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI")


@given(anything)
def test_nothing_unsafe_is_left_and_escaping_twice_changes_nothing(text: str) -> None:
    assert set(unsafe(for_terminal(text))) <= {"\t", "\n"}
    assert for_terminal(for_terminal(text)) == for_terminal(text)
    assert unsafe(for_line(text)) == []
    assert len(for_line(text).splitlines()) <= 1
    assert unsafe(for_markdown(text)) == []


@given(st.recursive(anything | st.integers() | st.none(), lambda inner: st.dictionaries(anything, inner)))
def test_json_is_one_harmless_line_that_loses_nothing(value: object) -> None:
    line = json_line(value)  # type: ignore[arg-type]  # The strategy makes JSON values alone.
    assert unsafe(line) == []
    assert len(line.splitlines()) == 1
    assert json.loads(line) == value
    line.encode()


def test_what_is_harmless_stays_as_it_is() -> None:
    text = "Zoë wrote 汉字 and עברית\n\tin 3 lines:\n👩‍👩‍👧 `x` <b>"
    assert for_terminal(text) == text


@pytest.mark.attack("records", "Markdown, HTML and links in tool names and errors, in the Temporal UI")
@pytest.mark.parametrize("text", [*MARKUP, *ATTACKS])
def test_markdown_shows_it_as_code_and_as_nothing_else(text: str) -> None:
    rendered = MarkdownIt("gfm-like", {"html": True, "linkify": False}).render(for_markdown(text)).strip()
    assert rendered.startswith("<p><code>") and rendered.endswith("</code></p>")
    assert "<" not in rendered.removeprefix("<p><code>").removesuffix("</code></p>")


LOGGING = """
import logging, sys
from clotho.logs import configure, subject
text = sys.stdin.buffer.read().decode("utf-8", "surrogatepass")
configure(sys.argv[1], "worker")
subject.set(text)
try:
    raise ValueError(text)
except ValueError:
    logging.getLogger("clotho").exception("the server said: %s", text)
"""


@pytest.mark.attack("records", "line breaks, terminal escapes and directional overrides in log lines")
@pytest.mark.parametrize("form", ["text", "json"])
def test_no_text_makes_a_log_line_or_hides_one(form: str) -> None:
    told = "".join(ATTACKS).encode("utf-8", "surrogatepass")
    done = subprocess.run([sys.executable, "-c", LOGGING, form], input=told, capture_output=True, check=True)
    said = done.stderr.decode()
    assert set(unsafe(said)) <= {"\n"}
    lines = said.splitlines()
    if form == "json":
        assert len(lines) == 1
        assert json.loads(lines[0])["message"].endswith(ATTACKS[-1])
    else:
        assert [line for line in lines if not line.startswith("    ")] == lines[:1]
        assert "the server said: ␛]0;owned␇" in lines[0]


@pytest.mark.attack("records", "terminal escapes and directional overrides in a failure that Temporal shows")
def test_a_failure_in_temporal_has_no_control_characters() -> None:
    failure = Failure()
    try:
        raise StoreUnavailable("".join(ATTACKS))
    except StoreUnavailable as error:
        DATA_CONVERTER.failure_converter.to_failure(error, DATA_CONVERTER.payload_converter, failure)
    assert set(unsafe(failure.message + failure.stack_trace)) <= {"\n"}
    assert failure.message.startswith("␛]0;owned␇")
