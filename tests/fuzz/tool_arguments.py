"""Arguments for any tool, made from its JSON schema alone, and workspaces in which its calls are made.

A text is chosen by the name of its property where something is known to be hard under that name, else among all
that is hard under any.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import Random
from typing import Any

from clotho.tools.tool import Tool
from tests.fuzz.requests import FRAGMENTS, VALUES
from tests.fuzz.runner import mutated, soup
from tests.tools.row import SESSION
from tests.tools.rows import ROWS, SITE

WORKSPACE = {
    "numbers.txt": "seq 400000 > numbers.txt",
    "same.txt": "yes x | head -n 400000 > same.txt",
    "line.txt": r"head -c 4900000 /dev/zero | tr '\0' a > line.txt",
    "empty_lines.txt": r"head -c 19000000 /dev/zero | tr '\0' '\n' > empty_lines.txt",
    "small_lines.txt": r"head -c 4900000 /dev/zero | tr '\0' '\n' > small_lines.txt",
    "indented.txt": r"{ head -c 100000 /dev/zero | tr '\0' ' '; printf 'one\n two\n'; } > indented.txt",
    "crlf.txt": r"seq 200000 | sed 's/$/\r/' > crlf.txt",
    "wide.txt": "yes 'ﷺ🧵 “quoted” — ﬁ' | head -n 60000 > wide.txt",
    "binary": "head -c 6000000 /dev/urandom > binary",
    "latin.txt": r"printf 'a\xe9b\n%.0s' $(seq 1000) > latin.txt",
    "code.py": "seq -f 'x%g = [' 30000 > code.py",
    "deep.py": r"head -c 200000 /dev/zero | tr '\0' '(' > deep.py",
    "deep.json": r"head -c 200000 /dev/zero | tr '\0' '[' > deep.json",
    "dotted.toml": "{ printf 'a'; yes .a | head -n 30000 | tr -d '\\n'; echo ' = 1'; } > dotted.toml",
    "empty": "touch empty",
    "sparse": "truncate -s 10G sparse",
    "loop": "ln -s loop loop",
    "zero": "ln -s /dev/zero zero",
    "up": "ln -s .. up",
    "fifo": "mkfifo fifo",
    "many": "mkdir many; (cd many; seq -f file-%g.txt 3000 | xargs touch)",
    "tree": "d=tree; for n in $(seq 80); do d=$d/d; done; mkdir -p $d; echo x > $d/leaf",
    "long_names": "mkdir long_names; (cd long_names; for n in $(seq 100 250); do touch $(printf %0${n}d 0); done)",
    "odd name\n": "touch $'odd name\\n'",
    "huge.png": r"printf '\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\1\x86\xa0\0\1\x86\xa0\x08\6\0\0\0' > huge.png",
    "large.png": r"{ printf '\x89PNG\r\n\x1a\n'; head -c 15000000 /dev/zero; } > large.png",
}
"""What a workspace may hold, and the commands that make it."""
PATHS = (
    *WORKSPACE,
    *("/work", "/", "..", "~", "/proc/self/environ", "/dev/zero", "/dev/stdin", "/etc/passwd", "/nowhere/x"),
    *(
        "new.py",
        "new.json",
        "new.toml",
        "a/b/c/d/new",
        "x" * 256,
        "d/" * 2_100,
        "a\nb",
        "-rf",
        "http://" + SITE,
    ),
)
NAMES = (
    "knots",
    "weaving",
    "KNOTS",
    "../knots",
    "a/b",
    "x" * 64,
    "x" * 65,
    "SKILL.md",
    "references/x.md",
    ".",
)
COMMANDS = (
    "true",
    "seq 3000000",
    "yes | head -c 30000000",
    "head -c 5000000 /dev/urandom",
    r"head -c 5000000 /dev/zero",
    r"yes $'\e[31m\e[2K\r' | head -c 3000000",
    r"head -c 3000000 /dev/zero | tr '\0' '\r'",
    r"printf '\xf0\x9f%.0s' $(seq 30000)",
    "cat numbers.txt empty_lines.txt line.txt",
    "cat",
    "sleep 60",
    "cd tree; exit 7",
    "export X=$(seq 20000)",
    "export X=\"$(head -c 90000 /dev/zero | tr '\\0' x)\"",
    "kill -9 $$",
    "exec >&-",
    "for n in $(seq 60); do sleep 30 & done",
    "'",
    "echo \udcff",
)
CODES = (
    "print('x' * 30_000_000)",
    "print('[' * 3_000_000)",
    "while True: print('x')",
    "raise SystemExit(3)",
    "(" * 50_000,
    "import clotho_tools as t\nfor n in range(60): t.read_file('numbers.txt')",
    "import clotho_tools as t\nfor n in range(60): t.terminal('seq 300000')",
    "import clotho_tools as t\nt.write_file('x', 'x' * 1_900_000)\nprint(t.search_files('x'))",
    "import clotho_tools as t\nt.patch(mode='replace', path='same.txt', old_string='x', new_string='y' * 90_000)",
    "import clotho_tools as t, os\nfor n in range(99): open(f'{t._folder}/{n}.request', 'w').write('[' * 900_000)",
)
TEXTS = (
    "",
    "x",
    "x\n",
    " x",
    "1",
    "\t",
    "\0",
    "“quoted” — ﬁ",
    "x" * 90_000,
    "x" * 1_900_000,
    "x\n" * 400_000,
    "\n" * 900_000,
    "a " * 400_000,
    " " * 100_000 + "x",
    "é" * 300_000,
    "ﷺ" * 100_000,
    "\u0301" * 100_000,
    "[" * 100_000,
    '{"a":' * 20_000,
    "9" * 50_000,
    "-----BEGIN RSA PRIVATE KEY-----" * 1_000,
    "<script>" * 20_000,
    "![](" * 50_000,
    "".join(f"{number}\n" for number in range(1, 100_000)),
)
PATTERNS = (
    *(
        "x",
        ".*",
        "(a+)+$",
        "(x|x|x)*y",
        r"\(a*\)*\1",
        "[",
        "*",
        "**/*",
        "a{1,255}{1,255}",
        "^",
        "$",
        "-e",
        "",
    ),
    *(
        "[!x" * 5_000,
        "(" * 5_000,
        "x|" * 20_000,
        "{a,b}" * 200,
        "?" * 20_000,
        r"\d+\n",
        "*a" * 100,
        "x" * 100_000,
    ),
)
URLS = (
    *(f"http://{SITE}/", f"http://{SITE}/long", "http://[::1", "http://127.0.0.1:1/", "file:///etc/passwd"),
    *(
        "data:text/html," + "<b>" * 2_000,
        "data:image/png;base64," + "A" * 1_500_000,
        "javascript:1",
        "http://" + "a." * 3_000,
    ),
    *(
        "https://weaving.test/looms",
        "x" * 8_000,
        "http://user:pass@host/",
        "http://xn--" + "9" * 300,
        "about:blank",
    ),
    *("numbers.txt", "huge.png", "large.png", "binary", "zero", "fifo", "empty", "sparse"),
)
HEADS = (
    "name: knots\ndescription: Tie knots.",
    "name: knots\ndescription: " + "x" * 80_000,
    "a0: &a0 {x: 1}\n" + "".join(f"a{n}: &a{n} {{<<: [*a{n - 1}, *a{n - 1}]}}\n" for n in range(1, 24)),
    "a: " + "[" * 5_000,
    "a: b\n" * 1_500,
    "? " * 2_000,
    "- " * 3_000,
    "a: |\n" + " x\n" * 2_000,
    "x: 190" + ":20" * 2_000,
    "!!python/object:os.system x",
)
PIECES = ("\n", "*** End Patch", "@@", "\0", "“", "\udcff", *FRAGMENTS)


def _lines(random: Random, sign: str) -> str:
    return f"{sign}{random.choice((random.randrange(400_000), 'x', '', '  x', 'a' * 1_000))}\n"


def patch(random: Random) -> str:
    """A patch of files of the workspace, as a model would write it."""
    parts = ["*** Begin Patch\n"]
    for _ in range(random.choice((1, 1, 2, 30))):
        path = random.choice((*PATHS, "numbers.txt", "same.txt", "small_lines.txt"))
        parts.append(f"*** {random.choice(('Update', 'Update', 'Update', 'Add', 'Delete'))} File: {path}\n")
        if random.random() < 0.1:
            parts.append(f"*** Move to: {random.choice(PATHS)}\n")
        for _ in range(random.choice((0, 1, 3, 300))):
            parts.append(random.choice(("@@\n", "@@ 5 @@\n", "")))
            parts += [_lines(random, random.choice(" -+")) for _ in range(random.choice((1, 3, 3, 40)))]
    return "".join((*parts, "*** End Patch\n"))


def skill(random: Random) -> str:
    return f"---\n{random.choice(HEADS)}\n---\n\n{random.choice(TEXTS)[:120_000]}"


def text(random: Random) -> str:
    return random.choice(TEXTS) if random.random() < 0.8 else soup(random, (*PIECES, *PATTERNS))


def anything(random: Random) -> str:
    return random.choice(list(BY_NAME.values()))(random)


BY_NAME: Mapping[str, Callable[[Random], str]] = {
    **dict.fromkeys(("path", "file_path", "workdir", "category"), lambda random: random.choice(PATHS)),
    "name": lambda random: random.choice(NAMES),
    "command": lambda random: random.choice(COMMANDS),
    "code": lambda random: random.choice(CODES),
    "patch": patch,
    "content": lambda random: skill(random) if random.random() < 0.5 else text(random),
    **dict.fromkeys(
        ("pattern", "file_glob", "watch_patterns", "query"), lambda random: random.choice(PATTERNS)
    ),
    **dict.fromkeys(("url", "urls", "image_url"), lambda random: random.choice(URLS)),
    "session_id": lambda random: random.choice((SESSION, SESSION, "proc_1", "")),
    "text": text,
}
"""What is hard under the names of properties; other names get any of it."""
NUMBERS = (0, 1, 1, 2, 5, 50, 1_000, 400_000, -1, 2**31, 2**63, 10**40)


def arguments(random: Random, tool: Tool) -> dict[str, Any]:
    """Arguments that the tool's schema describes, most of them valid."""
    made = _value(random, tool.parameters, "")
    row = ROWS.get(tool.name)
    if row is not None and random.random() < 0.3:
        made = {**made, **row.good} if random.random() < 0.3 else {**row.good, **made}
    assert isinstance(made, dict), f"{tool.name} has no schema of an object"
    return made


def written(random: Random, made: dict[str, Any]) -> str:
    """The arguments as JSON, seldom with something wrong in it."""
    if random.random() < 0.05:
        made = {**made, random.choice(list(made) or ["x"]): random.choice(VALUES)}
    written = json.dumps(made)
    return mutated(random, written, FRAGMENTS) if random.random() < 0.03 else written


def _value(random: Random, schema: Mapping[str, Any], name: str) -> Any:
    if "enum" in schema:
        return random.choice(schema["enum"])
    if options := schema.get("anyOf") or schema.get("oneOf"):
        return _value(random, random.choice(options), name)
    kind = schema.get("type")
    match random.choice(kind) if isinstance(kind, list) else kind:
        case "object":
            required, known = schema.get("required", ()), schema.get("properties", {})
            return {
                each: _value(random, known.get(each, {}), each)
                for each in (*known, *(each for each in required if each not in known))
                if each in required or random.random() < 0.5
            }
        case "array":
            least, most = schema.get("minItems", 0), schema.get("maxItems", 3_000)
            count = min(max(least, random.choice((0, 1, 2, 5, 3_000))), most)
            # Long items are few: a call has a bound on all of its arguments.
            items = [_value(random, schema.get("items", {}), name) for _ in range(min(count, 5))]
            short = [each for each in items if len(json.dumps(each)) < 500]
            return [random.choice(short) for _ in range(count)] if count > 5 and short else items
        case "string":
            made = BY_NAME.get(name, anything)(random)
            if random.random() < 0.1:
                made = mutated(random, made[:200_000], PIECES)
            return made.ljust(schema.get("minLength", 0), "x")[: schema.get("maxLength")]
        case "integer" | "number":
            low, high = schema.get("minimum", -(10**40)), schema.get("maximum", 10**40)
            return min(max(random.choice(NUMBERS), low), high)
        case "boolean":
            return random.random() < 0.5
    return random.choice(VALUES)


@dataclass(frozen=True)
class ToolCase:
    """Calls that are made one after the other in a workspace."""

    made: tuple[str, ...]
    """The commands that make the workspace."""
    calls: tuple[tuple[str, str], ...]
    """The tools, and the JSON texts of their arguments."""


def case(random: Random, tools: list[Tool]) -> ToolCase:
    tool = random.choice(tools)
    before = ROWS[tool.name].before if tool.name in ROWS else ()
    calls = [(name, json.dumps(given)) for name, given in before]
    others = [each for each in tools if each.toolset == tool.toolset]
    for _ in range(random.choice((1, 1, 2, 4))):
        each = tool if random.random() < 0.7 else random.choice(others)
        calls.append((each.name, written(random, arguments(random, each))))
    used = [path for path in WORKSPACE if any(json.dumps(path)[1:-1] in text for _, text in calls)]
    extra = random.sample(list(WORKSPACE), 3)
    return ToolCase(
        tuple(WORKSPACE[path] for path in {**dict.fromkeys(used), **dict.fromkeys(extra)}), tuple(calls)
    )
