"""For any rollout in any family's format: what is sampled stays as it was, and in exactly one branch."""

import itertools

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from clotho.branches import branches_of
from clotho.inference.base import PriorTurn
from clotho.rendering.prompts import next_prompt
from tests.unit.rendering.conftest import OpenFamily
from tests.unit.rendering.families import FAMILIES
from tests.unit.rendering.rollouts import TOOLS, planned_message, plans, roll, transcript

FORMATS = [
    (name, packaged) for name, family in FAMILIES.items() for packaged in {False, family.packaged is not None}
]
EXAMPLES = settings(
    max_examples=15,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@pytest.mark.parametrize(("name", "packaged"), sorted(FORMATS))
@EXAMPLES
@given(st.data())
def test_branches_hold_what_was_sampled(
    name: str, packaged: bool, open_family: OpenFamily, data: st.DataObject
) -> None:
    family = FAMILIES[name]
    thinking = data.draw(st.booleans()) if family.reasons else False
    renderer = open_family(name, packaged=packaged, thinking_mode=thinking)
    planned = data.draw(plans(family))
    taken = roll(renderer, family, planned)

    for plan, each in zip(planned, taken, strict=True):
        meant = planned_message(family, plan)
        assert each.message.content == meant.content
        assert each.message.reasoning_content == meant.reasoning_content
        assert [c.function for c in each.message.tool_calls] == [c.function for c in meant.tool_calls]

    branches = branches_of("run/g000000/r0", transcript(family, taken))
    assert [turn for branch in branches for turn in branch.turns] == list(range(len(taken)))
    for branch in branches:
        assert len(branch.ids) == len(branch.mask) == len(branch.logprobs) == len(branch.temperatures)
        sampled = [place for span in branch.spans for place in range(span.start, span.end)]
        assert [place for place, trained in enumerate(branch.mask) if trained] == sampled
        for span in branch.spans:
            tokens = taken[span.turn].tokens
            assert branch.ids[: span.start] == tokens.prompt_ids
            assert branch.ids[span.start : span.end] == tokens.ids
            assert branch.logprobs[span.start : span.end] == tokens.logprobs
        last = taken[branch.turns[-1]]
        if not thinking:
            shown = renderer.decode(renderer.render(last.before, TOOLS)) + renderer.decode(last.tokens.ids)
            assert renderer.decode(branch.ids) == shown

    begun = [branch.turns[0] for branch in branches]
    assert begun == [turn for turn, each in enumerate(taken) if not each.bridged]
    rewritten = family.moves_history or (family.reasons and not thinking)
    for turn in begun[1:]:
        assert rewritten and taken[turn].before[-1].role == "user"


@pytest.mark.parametrize(("name", "packaged"), sorted(FORMATS))
@EXAMPLES
@given(st.data())
def test_a_restart_at_any_turn_finds_the_same_prompt(
    name: str, packaged: bool, open_family: OpenFamily, data: st.DataObject
) -> None:
    family = FAMILIES[name]
    renderer = open_family(name, packaged=packaged)
    again = open_family(name, packaged=packaged, copy=1)
    assert again is not renderer
    taken = roll(renderer, family, data.draw(plans(family)))
    for before, each in itertools.pairwise(taken):
        prior = PriorTurn(messages=(*before.before, before.message), tokens=before.tokens)
        restored = PriorTurn.model_validate_json(prior.model_dump_json())
        assert next_prompt(again, each.before, TOOLS, restored) == each.tokens.prompt_ids
