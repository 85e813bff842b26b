"""The repositories of swe_tasks: their histories and issues, the cases that must hold, and how they are mended."""

from collections.abc import Mapping
from dataclasses import dataclass

from pydantic import JsonValue


@dataclass(frozen=True)
class Repository:
    issue: str
    commits: tuple[tuple[str, Mapping[str, str]], ...]
    """Messages and files, oldest first."""
    module: str
    """The file at fault."""
    mended: str
    call: str
    """Python that defines `case`, whose arguments and results are JSON."""
    cases: tuple[tuple[list[JsonValue], JsonValue], ...]
    """Arguments, and the result that they must have."""


SPANS = '''\
"""Spans of integers, as [start, end) pairs."""


def total(spans):
    return sum(end - start for start, end in spans)


def merged(spans):
    """The same numbers as the fewest spans, in order."""
    spans.sort()
    found = []
    for start, end in spans:
        if found and start < found[-1][1]:
            found[-1][1] = end
        else:
            found.append([start, end])
    return found
'''

SPANS_TEST = """\
import unittest

import spans


class Merged(unittest.TestCase):
    def test_overlapping(self):
        self.assertEqual(spans.merged([[1, 3], [2, 5], [8, 9]]), [[1, 5], [8, 9]])
"""

CACHE = '''\
"""A cache that forgets what was used longest ago."""


class Cache:
    def __init__(self, size):
        self.size = size
        self.values = {}

    def get(self, key, default=None):
        return self.values.get(key, default)

    def put(self, key, value):
        if len(self.values) >= self.size:
            del self.values[next(iter(self.values))]
        self.values[key] = value
'''

CACHE_MENDED = '''\
"""A cache that forgets what was used longest ago."""


class Cache:
    def __init__(self, size):
        self.size = size
        self.values = {}

    def get(self, key, default=None):
        if key not in self.values:
            return default
        self.values[key] = self.values.pop(key)
        return self.values[key]

    def put(self, key, value):
        self.values.pop(key, None)
        if len(self.values) >= self.size:
            del self.values[next(iter(self.values))]
        self.values[key] = value
'''

CACHE_CALL = """\
from cache import Cache
def case(size, steps):
    cache, seen = Cache(size), []
    for step in steps:
        seen.append(cache.get(step[0], "none") if len(step) == 1 else cache.put(*step))
    return seen
"""

FIELDS = '''\
"""Lines of values, separated by commas."""


def split(line):
    """The values of a line. Quoted ones may hold commas."""
    values, value, quoted = [], "", False
    for character in line:
        if character == '"':
            quoted = not quoted
        elif character == "," and not quoted:
            values.append(value)
            value = ""
        else:
            value += character
    if value:
        values.append(value)
    return values
'''

FIELDS_MENDED = '''\
"""Lines of values, separated by commas."""


def split(line):
    """The values of a line. Quoted ones may hold commas."""
    values, value, quoted, position = [], "", False, 0
    while position < len(line):
        character = line[position]
        if quoted and line.startswith('""', position):
            value += '"'
            position += 1
        elif character == '"':
            quoted = not quoted
        elif character == "," and not quoted:
            values.append(value)
            value = ""
        else:
            value += character
        position += 1
    return [*values, value]
'''

REPOSITORIES = {
    "spans": Repository(
        issue=(
            "merged() in spans.py changes the list that it is given. It also leaves spans apart that touch, such "
            "as [1, 2] and [2, 3], and loses numbers where one span lies inside another."
        ),
        commits=(
            (
                "Count the numbers in spans",
                {"README.md": "# Spans\n", "spans.py": SPANS.partition("\n\n\ndef merged")[0] + "\n"},
            ),
            ("Merge spans", {"spans.py": SPANS, "tests/test_spans.py": SPANS_TEST}),
        ),
        module="spans.py",
        mended=SPANS.replace("    spans.sort()\n", "")
        .replace(
            "for start, end in spans:\n        if found and start < ",
            "for start, end in sorted(spans):\n        if found and start <= ",
        )
        .replace("found[-1][1] = end", "found[-1][1] = max(found[-1][1], end)"),
        call="from spans import merged\ndef case(spans):\n    return [merged(spans), spans]\n",
        cases=(
            ([[[1, 3], [2, 5], [8, 9]]], [[[1, 5], [8, 9]], [[1, 3], [2, 5], [8, 9]]]),
            ([[[4, 6], [1, 2], [2, 3]]], [[[1, 3], [4, 6]], [[4, 6], [1, 2], [2, 3]]]),
            ([[[0, 9], [1, 2]]], [[[0, 9]], [[0, 9], [1, 2]]]),
            ([[]], [[], []]),
        ),
    ),
    "cache": Repository(
        issue=(
            "Cache forgets the oldest key even if it was just read with get(). And writing a key that is already "
            "there makes a full cache forget another one."
        ),
        commits=(("Forget what was used longest ago", {"cache.py": CACHE, "README.md": "# Cache\n"}),),
        module="cache.py",
        mended=CACHE_MENDED,
        call=CACHE_CALL,
        cases=(
            ([2, [["a", 1], ["b", 2], ["c", 3], ["a"], ["b"], ["c"]]], [None, None, None, "none", 2, 3]),
            ([2, [["a", 1], ["b", 2], ["a"], ["c", 3], ["a"], ["b"]]], [None, None, 1, None, 1, "none"]),
            ([2, [["a", 1], ["b", 2], ["b", 3], ["a"], ["b"]]], [None, None, None, 1, 3]),
            (
                [2, [["a", 1], ["b", 2], ["a", 3], ["c", 4], ["a"], ["b"]]],
                [None, None, None, None, 3, "none"],
            ),
            ([1, [["a", None], ["a"]]], [None, None]),
        ),
    ),
    "fields": Repository(
        issue=(
            "split() in fields.py drops an empty last value: 'a,' has two. Inside quotes, two quotes in a row "
            "stand for one quote, and are lost now."
        ),
        commits=(
            (
                "Split lines",
                {
                    "fields.py": FIELDS.replace(
                        "if character == '\"':\n            quoted = not quoted\n        el", ""
                    )
                },
            ),
            ("Let quoted values hold commas", {"fields.py": FIELDS, "README.md": "# Fields\n"}),
        ),
        module="fields.py",
        mended=FIELDS_MENDED,
        call="from fields import split\ndef case(line):\n    return split(line)\n",
        cases=(
            (["a,b"], ["a", "b"]),
            (["a,"], ["a", ""]),
            ([""], [""]),
            (['"a,b",c'], ["a,b", "c"]),
            (['"a ""b""",c'], ['a "b"', "c"]),
            (['""'], [""]),
            (['"""",x'], ['"', "x"]),
        ),
    ),
}
