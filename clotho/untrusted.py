"""Reading of JSON, TOML and YAML that comes from outside: from models, sandboxes, servers and data sets.

A few hundred characters can cost the parsers hours or gigabytes (YAML's merges), or end them in a RecursionError
(nesting); others cost time that grows faster than the text (TOML's dotted keys). So the functions here count a
text's structure in linear time before they parse it, and read YAML without aliases and merges.
"""

import asyncio
import json
import re
import tomllib
from collections.abc import Callable
from typing import Any, NoReturn, ParamSpec, TypeVar

import yaml

MAX_NESTING = 100
"""Far more than any format here asks for, and far less than what the interpreter's stack holds."""
MAX_VALUES = 100_000
"""Values of a JSON text. One takes up to 100 bytes, and a microsecond to parse or ten to validate."""
MAX_CHARS = 100_000
"""Characters of a TOML or YAML text, which take up to a second to parse."""
LONG = 100_000
"""Characters beyond which a text is worked on in a thread: less takes no tenth of a second."""

# Alternatives are atomic within possessive repeats, which forget their way back wrongly in Python before 3.11.5.
JSON_STRING = re.compile(r'"(?:(?>[^"\\]+|\\.))*+"?', re.DOTALL)
STREAMED_STRING = re.compile(rb'"(?:(?>[^"\\\r\n]+|\\[^\r\n]))*+"?')
STREAMED = re.compile(
    rb"""
      (?: (?> [^"]+ | " (?: (?> [^"\\\r\n]+ | \\[^\r\n] ) )*+ (?: " | \\?[\r\n] ) ) )*+
      (?P<open> " (?: (?> [^"\\\r\n]+ | \\[^\r\n] ) )*+ \\? )?
    """,
    re.VERBOSE,
)
"""Text whose last string may be open: no string of JSON goes on in the next line."""
TOML_STRING = re.compile(
    r"""
      \"{3} (?: (?> [^"\\]+ | \\. | "(?!"") ) )*+ (?: "{3,5} )?
    | '{3} (?: (?> [^']+ | '(?!'') ) )*+ (?: '{3,5} )?
    | " (?: (?> [^"\\\n]+ | \\. ) )*+ "?
    | ' [^'\n]*+ '?
    | \# [^\n]*+
    """,
    re.DOTALL | re.VERBOSE,
)
"""Strings and comments, also such as never end: the search goes on behind them in any case."""
OTHER_THAN_BRACKETS = re.compile(r"[^][{}]++")
LONG_KEY = re.compile(rf"(?<![\w-])(?:[\w-]++[ \t]*+\.[ \t]*+){{{MAX_NESTING}}}")

P = ParamSpec("P")
T = TypeVar("T")


class Unreadable(ValueError):
    """A text isn't of its format, or beyond the bounds on what is read of it."""


class Excessive(Unreadable):
    """A text is beyond the bounds on what is read of it."""


def load_json(text: str | bytes, most_values: int = MAX_VALUES) -> Any:
    """The value of a JSON text; NaN and infinities aren't JSON. Raises Unreadable."""
    try:
        if isinstance(text, bytes):
            # as json.loads decodes bytes
            text = text.decode(errors="surrogatepass")
        structure = JSON_STRING.sub("", text)
        # a text has at most twice as many values as these, and one
        if structure.count(",") + structure.count("[") + structure.count("{") > most_values:
            raise Excessive(f"it has more than {most_values:,} values")
        _require_shallow(structure)
        return json.loads(text, parse_constant=_refuse_constant)
    except Unreadable:
        raise
    except (ValueError, RecursionError) as error:
        raise Unreadable(str(error)) from error


def load_toml(text: str) -> dict[str, Any]:
    """The table of a TOML text. Raises Unreadable."""
    _require_short(text)
    structure = TOML_STRING.sub("s", text)
    _require_shallow(structure)
    if LONG_KEY.search(structure):
        raise Excessive(f"a key has more than {MAX_NESTING} parts")
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise Unreadable(str(error)) from error


def load_yaml(text: str | bytes) -> Any:
    """The value of the one document of a YAML text. Raises Unreadable, also for aliases and merges."""
    _require_short(text)
    loader = _PlainLoader(text)
    try:
        return loader.get_single_data()
    except Unreadable:
        raise
    # Values that a tag doesn't fit, such as `!!bool x`, end in errors of any kind.
    except (yaml.YAMLError, ValueError, LookupError, AttributeError, TypeError, ArithmeticError) as error:
        raise Unreadable(" ".join(str(error).split()) or type(error).__name__) from error
    finally:
        loader.dispose()


def require_shallow(value: Any) -> None:
    """Raise Excessive for a decoded value whose nesting could exhaust the stack of code that walks it later."""
    layer = [value] if isinstance(value, (dict, list)) else []
    for _ in range(MAX_NESTING):
        inner = (each.values() if isinstance(each, dict) else each for each in layer)
        layer = [item for items in inner for item in items if isinstance(item, (dict, list))]
        if not layer:
            return
    raise Excessive("nested too deeply")


class ValueCount:
    """Bounds the values of JSON that is received in pieces, and parsed by others. `feed` raises Excessive."""

    def __init__(self, most: int = MAX_VALUES) -> None:
        self._most = self._left = most
        self._open = b""

    def feed(self, piece: bytes) -> None:
        text = self._open + piece
        matched = STREAMED.fullmatch(text)
        assert matched is not None, "it matches any text"
        rest = matched["open"] or b""
        structure = STREAMED_STRING.sub(b"", text[: len(text) - len(rest)])
        self._left -= structure.count(b",") + structure.count(b"[") + structure.count(b"{")
        if self._left < 0:
            raise Excessive(f"it has more than {self._most:,} values")
        # Of the open string no more is kept than its quote, and a backslash that the next piece goes on from.
        self._open = b'"\\' if _ends_escaping(rest) else rest[:1]


def values_in(value: Any) -> int:
    """How many values a decoded value has, itself included."""
    count, left = 0, [value]
    while left:
        each = left.pop()
        count += 1
        if isinstance(each, dict | list):
            left.extend(each.values() if isinstance(each, dict) else each)
    return count


async def in_thread_if_long(length: int, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Do `work` on a text of `length` characters; a long one goes to a thread, off the event loop."""
    if length <= LONG:
        return work(*args, **kwargs)
    return await asyncio.to_thread(work, *args, **kwargs)


class _PlainLoader(yaml.SafeLoader):
    """YAML as a tree: a text of n characters has no more than n values."""

    def __init__(self, stream: str | bytes) -> None:
        try:
            super().__init__(stream)
        except yaml.YAMLError as error:  # of characters that YAML can't hold
            raise Unreadable(" ".join(str(error).split())) from error
        self._depth = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            raise Unreadable("aliases (`*name`) aren't read: write the value out")
        self._depth += 1
        if self._depth > MAX_NESTING:
            raise Excessive("nested too deeply")
        node: yaml.Node | None = super().compose_node(parent, index)
        self._depth -= 1
        return node

    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        if any(key.tag == "tag:yaml.org,2002:merge" for key, _ in node.value):
            raise Unreadable("merges (`<<`) aren't read: write the fields out")
        super().flatten_mapping(node)


def _require_short(text: str | bytes) -> None:
    if len(text) > MAX_CHARS:
        raise Excessive(f"it has more than {MAX_CHARS:,} characters")


def _require_shallow(structure: str) -> None:
    """Raise Excessive where the brackets of a text without its strings are nested too deeply."""
    depth = 0
    for bracket in OTHER_THAN_BRACKETS.sub("", structure):
        depth += 1 if bracket in "[{" else -1
        if depth > MAX_NESTING:
            raise Excessive("nested too deeply")
        if depth < 0:  # no parser reads on
            return


def _ends_escaping(text: bytes) -> bool:
    return (len(text) - len(text.rstrip(b"\\"))) % 2 == 1


def _refuse_constant(name: str) -> NoReturn:
    raise Unreadable(f"{name} is not JSON")
