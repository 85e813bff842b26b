"""Texts of models and tools as HTML: Markdown, highlighted code and diffs.

The texts are hostile. Every character of them is escaped, only tags of this module reach a page, and nothing is
loaded: images become their descriptions, and links lead to other sites alone, whose names stand behind them. The
work is bounded, for a page and for each text: what goes beyond a bound is None, and is shown raw.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import groupby
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import urlsplit

from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.rules_block import StateBlock
from markdown_it.rules_inline import StateInline
from markdown_it.token import Token
from markupsafe import Markup, escape
from pygments.lexer import Lexer
from pygments.lexers import get_lexer_by_name
from pygments.token import Comment, Keyword, Name, Number, Operator, String

from clotho.escaping import for_terminal

CLIPPED_CHARACTERS = 12_000
"""Longer texts are shown up to here; their entries have all."""
CLIPPED_LINES = 400
PAGE_SECONDS, TEXT_SECONDS = 2.0, 0.5
"""CPU time of the texts of one page, and of one of them."""
PAGE_CHARACTERS = 500_000
LONGEST_LINE = 2_000
"""Characters of a line of code: lexers' expressions may take the square of its length, and can't be interrupted."""
MOST_COLUMNS = 40
"""Of a Markdown table, whose every row is filled up with as many cells."""
DEEPEST = 40
"""Levels of lists and quotations in each other."""
KEPT_ATTRIBUTES = {"link_open": {"href"}, "ordered_list_open": {"start"}}
LANGUAGES = {
    "bash": ("bash", "sh", "shell", "zsh", "console"),
    "c": ("c", "h"),
    "cpp": ("cpp", "cc", "cxx", "hpp", "c++"),
    "css": ("css",),
    "go": ("go", "golang"),
    "html": ("html", "htm"),
    "ini": ("ini", "cfg", "conf"),
    "java": ("java",),
    "javascript": ("javascript", "js", "jsx", "mjs"),
    "json": ("json", "jsonl"),
    "make": ("make", "makefile", "mk"),
    "python": ("python", "py", "pyi", "python3"),
    "rust": ("rust", "rs"),
    "sql": ("sql",),
    "toml": ("toml",),
    "typescript": ("typescript", "ts", "tsx"),
    "yaml": ("yaml", "yml"),
}
"""Lexers that a text may name -> the names and endings of files that mean them."""
LEXERS = {name: lexer for lexer, names in LANGUAGES.items() for name in names}
DIFFS = ("diff", "patch")
CLASSES = {
    Comment: "c",
    Keyword: "k",
    Name.Builtin: "b",
    Name.Class: "f",
    Name.Decorator: "f",
    Name.Function: "f",
    Name.Tag: "k",
    Number: "m",
    Operator.Word: "k",
    String: "s",
}
SIGNS = {"+": "add", "-": "del"}
HEADINGS = ("*** ", "rename ", "diff --git ", "index ", "... [")
"""Beginnings of lines of a diff that belong to no file's text."""


def clipped(text: str) -> str:
    """The beginning of a long text."""
    lines = text[:CLIPPED_CHARACTERS].split("\n", CLIPPED_LINES)
    return "\n".join(lines[:CLIPPED_LINES])


class TooMuch(Exception):
    """A text that isn't rendered, as it is too large, too deep, or takes too long."""


class Allowance:
    """The work that may go into the texts of one page."""

    def __init__(self) -> None:
        self._seconds = PAGE_SECONDS
        self._characters = PAGE_CHARACTERS
        self._until = 0.0

    @contextmanager
    def spent_on(self, text: str) -> Iterator[None]:
        """Raises TooMuch."""
        self._characters -= len(text)
        if self._characters < 0:
            raise TooMuch
        # the thread's CPU time: what is shown doesn't depend on how busy the machine is
        begun = time.thread_time()
        self._until = begun + min(TEXT_SECONDS, self._seconds)
        try:
            yield
        finally:
            self._seconds -= time.thread_time() - begun

    def check(self) -> None:
        """Raises TooMuch once the text has taken too long."""
        if time.thread_time() > self._until:
            raise TooMuch


class Texts:
    """Renders the texts of one page; None for one that is too much."""

    def __init__(self) -> None:
        self._allowance = Allowance()

    def markdown(self, text: str) -> Markup | None:
        return self._bounded(self._markdown, text)

    def code(self, text: str, language: str) -> Markup | None:
        """Text in a language, or in a file of this name."""
        return self._bounded(lambda code: _block("code", self._lines(code, language)), text)

    def diff(self, text: str) -> Markup | None:
        """A unified diff, or a patch in the V4A format."""
        return self._bounded(lambda diff: _block("code diff", self._diff_lines(diff), ""), text)

    def _bounded(self, render: Callable[[str], Markup], text: str) -> Markup | None:
        try:
            with self._allowance.spent_on(text):
                rendered = render(for_terminal(text))
        except (TooMuch, RecursionError):
            return None
        # Entities of Markdown can name characters that reorder what is read.
        return Markup(for_terminal(str(rendered)))

    def _markdown(self, text: str) -> Markup:
        if any(line.count("|") > MOST_COLUMNS for line in text.split("\n")):
            raise TooMuch
        parser = _parser(self._allowance)
        return Markup(parser.render(text, {"code": self._fenced}))

    def _fenced(self, code: str, language: str) -> Markup:
        code = code.removesuffix("\n")
        if language in DIFFS:
            return _block("code diff", self._diff_lines(code), "")
        return _block("code", self._lines(code, language))

    def _lines(self, code: str, language: str) -> list[Markup]:
        """The lines of code, highlighted where the language is known."""
        lines = code.split("\n")
        lexer = _lexer(language)
        if lexer is None or max(map(len, lines)) > LONGEST_LINE:
            return [escape(line) for line in lines]
        found = [Markup()]
        for kind, value in lexer.get_tokens(code):
            self._allowance.check()
            name = _class_of(kind)
            for number, part in enumerate(value.split("\n")):
                if number:
                    found.append(Markup())
                if part:
                    found[-1] += Markup('<span class="h-{}">{}</span>').format(name, part) if name else part
        return found[: len(lines)]

    def _diff_lines(self, text: str) -> Iterator[Markup]:
        language = ""
        for is_code, part in groupby(_classified(text.split("\n")), lambda pair: pair[0]):
            lines = [line for _, line in part]
            if is_code:
                yield from self._hunk(lines, language)
                continue
            for line in lines:
                is_hunk = line.startswith("@@")
                # of a file that is new or gone, the other name tells the language
                if not is_hunk and not line.endswith("/dev/null"):
                    language = line.rpartition("/")[2]
                yield Markup('<span class="line {}">{}</span>').format("hunk" if is_hunk else "file", line)

    def _hunk(self, lines: Sequence[str], language: str) -> Iterator[Markup]:
        """Lines that are kept, added or removed, each highlighted as a line of the text that it belongs to."""
        texts = {
            sign: iter(self._lines("\n".join(line[1:] for line in lines if line[:1] != other), language))
            for sign, other in (("-", "+"), ("+", "-"))
        }
        for line in lines:
            sign = line[:1] or " "
            # a line that is kept is in both texts, so both move on
            shown = [next(texts[each]) for each in texts if sign in (each, " ")][-1]
            kind = SIGNS.get(sign, "same")
            yield Markup('<span class="line {}"><span class="sign">{}</span>{}</span>').format(
                kind, sign, shown
            )


class _Renderer(RendererHTML):
    """HTML of Markdown that loads nothing, with the site of each link behind it."""

    def image(self, tokens: Sequence[Token], at: int, options: Any, env: Any) -> str:
        described = self.renderInlineAsText(tokens[at].children or (), options, env)
        return Markup('<span class="image">[image: {}]</span>').format(described or tokens[at].attrs["src"])

    def link_open(self, tokens: Sequence[Token], at: int, options: Any, env: Any) -> str:
        address = str(tokens[at].attrs.get("href", ""))
        site = _site(address)
        env["site"] = None if tokens[at].markup == "autolink" else site
        env["closing"] = "</a>" if site else "</span>"
        if not site:
            return Markup('<span class="address" title="{}">').format(address)
        return Markup('<a href="{}" rel="noreferrer noopener nofollow">').format(address)

    def link_close(self, tokens: Sequence[Token], at: int, options: Any, env: Any) -> str:
        site = Markup(' <small class="site">{}</small>').format(env["site"]) if env["site"] else ""
        return f"{env['closing']}{site}"

    def fence(self, tokens: Sequence[Token], at: int, options: Any, env: Any) -> str:
        language = tokens[at].info.strip().split(" ")[0].lower()
        return str(env["code"](tokens[at].content, language))

    def code_block(self, tokens: Sequence[Token], at: int, options: Any, env: Any) -> str:
        return str(env["code"](tokens[at].content, ""))


def _parser(allowance: Allowance) -> MarkdownIt:
    """A parser that asks before each step whether it may go on."""
    # maxNesting above DEEPEST: markdown-it would silently leave out what is deeper
    options = {"html": False, "breaks": True, "linkify": False, "maxNesting": 2 * DEEPEST}
    parser = MarkdownIt("commonmark", options, renderer_cls=_Renderer).enable(["table", "strikethrough"])

    def block(state: StateBlock, first: int, last: int, silent: bool) -> bool:
        return go_on(state)

    def inline(state: StateInline, silent: bool) -> bool:
        return go_on(state)

    def go_on(state: StateBlock | StateInline) -> bool:
        if state.level > DEEPEST:
            raise TooMuch
        allowance.check()
        return False

    def harmless(state: Any) -> None:
        """Keep the few attributes that are needed, and make headings those of a part of a page."""
        for token in (each for block in state.tokens for each in (block, *(block.children or ()))):
            kept = KEPT_ATTRIBUTES.get(token.type, {"src"} if token.type == "image" else set())
            token.attrs = {name: value for name, value in token.attrs.items() if name in kept}
            if token.type in ("heading_open", "heading_close"):
                token.tag = f"h{min(6, 3 + int(token.tag[1:]))}"

    # before the first rules, so that each step asks; `alt`: also where a paragraph or list looks for its end
    parser.block.ruler.before(
        "table", "go_on", block, {"alt": ["paragraph", "reference", "blockquote", "list"]}
    )
    parser.inline.ruler.before("text", "go_on", inline)
    parser.core.ruler.push("harmless", harmless)
    return parser


def _site(address: str) -> str | None:
    """The host of a link to another site; None for any other address, which leads nowhere."""
    try:
        parts = urlsplit(address)
    except ValueError:
        return None
    return parts.netloc if parts.scheme in ("http", "https") else None


def _lexer(language: str) -> Lexer | None:
    """The lexer of a language, or of a file's name."""
    name = PurePosixPath(language).name.lower()
    known = LEXERS.get(name) or LEXERS.get(name.rpartition(".")[2])
    return get_lexer_by_name(known, stripnl=False, ensurenl=False) if known is not None else None


def _class_of(kind: Any) -> str:
    return next((CLASSES[each] for each in reversed(kind.split()) if each in CLASSES), "")


def _block(kind: str, lines: Iterator[Markup] | Sequence[Markup], between: str = "\n") -> Markup:
    return Markup('<pre class="{}"><code>{}</code></pre>').format(kind, Markup(between).join(lines))


def _classified(lines: Sequence[str]) -> Iterator[tuple[bool, str]]:
    """Each line of a diff, and whether it is one of a file's text."""
    after_old_name = False
    for line, following in zip(lines, [*lines[1:], ""], strict=True):
        # a removed line of `-- ` begins like a file's old name, but no `+++ ` follows it
        is_old_name = line.startswith("--- ") and following.startswith("+++ ")
        heads = (
            is_old_name or after_old_name or line.startswith(HEADINGS) or line[:1] not in ("+", "-", " ", "")
        )
        yield not heads, line
        after_old_name = is_old_name
