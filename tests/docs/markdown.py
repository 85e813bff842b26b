"""The pages of the documentation, and what is in them: links, code spans, code blocks and commands."""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    (
        *(ROOT / "docs").rglob("*.md"),
        *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")),
        *(ROOT / "examples").rglob("*.md"),
    )
)
NAMES = [str(page.relative_to(ROOT)) for page in PAGES]

FENCE = re.compile(
    r'^```(?P<language>\w*)(?: title="(?P<title>[^"]+)")?\n(?P<text>.*?)^```$', re.MULTILINE | re.DOTALL
)
SPAN = re.compile(r"`([^`\n]+)`")
LINK = re.compile(r"\]\((?!\w+:)(?P<path>[^)#\s]*)(?:#(?P<anchor>[^)\s]+))?\)")
COMMENT = re.compile(r"(?:^|\s{2,})#.*$", re.MULTILINE)
ELLIPSIS = "…"


@dataclass(frozen=True)
class Block:
    language: str
    title: str | None
    text: str


def text_of(page: str) -> str:
    return (ROOT / page).read_text()


def blocks(page: str) -> list[Block]:
    return [
        Block(found["language"], found["title"], found["text"]) for found in FENCE.finditer(text_of(page))
    ]


def spans(page: str) -> list[str]:
    return SPAN.findall(FENCE.sub("", text_of(page)))


def anchors(page: Path) -> set[str]:
    """The names that headings get."""
    headings = re.findall(r"^#+ (.+)$", FENCE.sub("", page.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


def commands(page: str) -> Iterator[list[str]]:
    """The words of every command in the page's shell blocks, without assignments before it."""
    for block in blocks(page):
        if block.language in ("", "sh"):
            for line in COMMENT.sub("", block.text.replace("\\\n", " ")).splitlines():
                yield from _words(line)


def mentioned_commands(page: str) -> Iterator[list[str]]:
    """The words of every command that a sentence names."""
    for span in spans(page):
        if re.match(r"(?:\.venv/bin/)?(?:clotho|make|python3?) [\w-]", span):
            yield from _words(span)


def _words(line: str) -> Iterator[list[str]]:
    words = shlex.split(line)
    while words and re.fullmatch(r"[A-Z_0-9]+=.*", words[0]):
        words = words[1:]
    if words and words[-1] == "&":
        words.pop()
    if words:
        yield [words[0].removeprefix(".venv/bin/"), *words[1:]]
