"""What holds for every dialect, whatever the model writes."""

import json
from functools import partial

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from clotho.models.messages import ToolSchema
from clotho.models.tool_call_parsers import parser
from clotho.models.tool_call_parsers.registry import PARSERS
from tests.support import cpu_seconds
from tests.unit.tool_call_parsers.dialects import DIALECTS, Arguments, Dialect

BOTH = [pytest.param(name, dialect, id=name) for name in PARSERS for dialect in DIALECTS[name]]
DISTINCT = [each for each in BOTH if each.id not in ("qwen", "llama4_json", "glm47", "deepseek_v31")]
MEGABYTE = 1_000_000
SLOWEST = 5.0
NAMES = st.from_regex(r"[A-Za-z_][A-Za-z0-9_-]{0,20}", fullmatch=True)
PROSE = st.text(
    st.characters(exclude_categories=("Cs", "Cc", "Zl", "Zp"), exclude_characters="{}<>[]|｜;"), max_size=40
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | PROSE,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(PROSE, inner, max_size=3),
    max_leaves=8,
)
FRAGMENTS = (
    '{"name": "terminal", "arguments": {"timeout": "5"}}',
    '"name": "a:1"',
    '"\\ud83c"',
    "terminal",
    "timeout",
)


def offered(properties: dict[str, object]) -> list[ToolSchema]:
    parameters = {"type": "object", "properties": properties}
    return [{"type": "function", "function": {"name": "terminal", "parameters": parameters}}]  # type: ignore[dict-item]


TOOLS = offered({"timeout": {"type": "integer"}, "env": {"type": "object"}, "watch": {"type": "array"}})


def soup(dialect: Dialect) -> st.SearchStrategy[str]:
    """Texts made of a dialect's markers, pieces of calls, and anything."""
    pieces = st.sampled_from((*dialect.markers, *FRAGMENTS)) | st.text(max_size=5)
    return st.lists(pieces, max_size=20).map("".join)


def arguments_of(dialect: Dialect) -> st.SearchStrategy[Arguments]:
    if dialect.argument_text:
        return st.dictionaries(NAMES, PROSE, max_size=3)
    return st.dictionaries(PROSE, JSON, max_size=3)


@pytest.mark.parametrize(("name", "dialect"), BOTH)
def test_no_text_raises(name: str, dialect: Dialect) -> None:
    @given(text=st.text() | soup(dialect), tools=st.sampled_from(([], TOOLS)))
    @settings(max_examples=150, deadline=None)
    def check(text: str, tools: list[ToolSchema]) -> None:
        answer = parser(name).parse(text, tools)
        answer.model_dump_json()

    check()


@pytest.mark.parametrize(("name", "dialect"), BOTH)
def test_rendered_calls_come_back(name: str, dialect: Dialect) -> None:
    @given(
        before=PROSE,
        after=PROSE,
        calls=st.lists(st.tuples(NAMES, arguments_of(dialect)), min_size=1, max_size=3),
    )
    @example(before=" ", after="", calls=[("A", {})])
    @settings(max_examples=60, deadline=None)
    def check(before: str, after: str, calls: list[tuple[str, Arguments]]) -> None:
        answer = parser(name).parse(f"{before}{dialect.render(calls)}{after}")
        found = [(call.function.name, json.loads(call.function.arguments)) for call in answer.calls]
        assert found == calls
        if dialect.opens_with_brace:
            assert answer.content is None
        else:
            shown = before if dialect.keeps_white_space else before.strip()
            blank = not shown or (dialect.drops_blank and not shown.strip())
            assert answer.content == (None if blank else shown)

    check()


@pytest.mark.parametrize(("name", "dialect"), DISTINCT)
def test_hostile_megabytes_take_linear_time(name: str, dialect: Dialect) -> None:
    call = dialect.render([("terminal", {"timeout": "5"})])
    bits = (*(marker + "{" for marker in dialect.markers), call[: len(call) // 2], call[:-3], call)
    texts = [bit * (MEGABYTE // len(bit)) for bit in bits]
    texts += [call[: len(call) // 2] + " " * MEGABYTE, call[: len(call) // 2] + "[" * MEGABYTE]
    for text in texts:
        assert cpu_seconds(partial(parser(name).parse, text, TOOLS), SLOWEST) < SLOWEST, text[:80]


@pytest.mark.parametrize(("name", "dialect"), DISTINCT)
def test_no_depth_of_nesting_raises(name: str, dialect: Dialect) -> None:
    """Reading stops at some depth; what comes after must not stop at a lesser one."""
    for depth in (*range(90, 110), *range(900, 1_010, 10), 100_000):
        value = "[" * depth + "]" * depth
        nested = (
            dialect.render([("terminal", {"env": "DEEP"})]).replace('"DEEP"', value).replace("DEEP", value)
        )
        parser(name).parse(nested, TOOLS)
