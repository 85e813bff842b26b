"""Our answers beside those recorded from vLLM's parsers; every difference is listed, under the rule it follows."""

import json
from pathlib import Path

import pytest
from pydantic import BaseModel, ConfigDict

from clotho.models.messages import ToolSchema
from clotho.models.tool_call_parsers import ParsedAnswer, parser
from clotho.models.tool_call_parsers.registry import PARSERS

FOLDER = Path(__file__).parent


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Call(Strict):
    name: str
    arguments: str
    id: str | None = None


class Answer(Strict):
    content: str | None = None
    calls: tuple[Call, ...] = ()


class Case(Answer):
    """A text and what vLLM made of it."""

    case: str
    """The parser's name, and what is special about the text."""
    tools: bool
    text: str
    raised: str | None = None

    @property
    def parser(self) -> str:
        return self.case.partition(":")[0]

    @property
    def answer(self) -> Answer | None:
        return None if self.raised else Answer(content=self.content, calls=self.calls)


class Recording(Strict):
    about: tuple[str, ...]
    vllm: str
    tools: tuple[ToolSchema, ...]
    cases: tuple[Case, ...]


RECORDING = Recording.model_validate(json.loads((FOLDER / "vllm_answers.json").read_bytes()))
DEVIATIONS = {
    case: Answer.model_validate(answer)
    for cases in json.loads((FOLDER / "deviations.json").read_bytes()).values()
    for case, answer in cases.items()
}


def answer(case: Case) -> Answer:
    return plain(parser(case.parser).parse(case.text, RECORDING.tools if case.tools else ()))


def plain(parsed: ParsedAnswer) -> Answer:
    calls = (
        Call(name=call.function.name, arguments=call.function.arguments, id=call.id) for call in parsed.calls
    )
    return Answer(content=parsed.content, calls=tuple(calls))


@pytest.mark.parametrize("name", PARSERS)
def test_answers_are_vllms(name: str) -> None:
    cases = [case for case in RECORDING.cases if case.parser == name]
    expected = {case.case: DEVIATIONS.get(case.case, case.answer) for case in cases}
    assert len(cases) >= 10
    assert {case.case: answer(case) for case in cases} == expected


def test_each_deviation_is_one() -> None:
    recorded = {case.case: case.answer for case in RECORDING.cases}
    assert len(recorded) == len(RECORDING.cases)
    assert [case for case, ours in DEVIATIONS.items() if recorded[case] == ours] == []
