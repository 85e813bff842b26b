"""For any rollout in any family's format: what is sampled stays as it was, and in exactly one branch."""

import itertools
import json
import re

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from clotho.models.backend import PriorTurn
from clotho.models.messages import ChatMessage, FunctionCall, ToolCall
from clotho.rollouts.branches import branches_of
from tests.unit.rendering.conftest import OpenFamily
from tests.unit.rendering.families import FAMILIES
from tests.unit.rendering.rollouts import (
    TOOLS,
    encode,
    openings,
    planned_message,
    plans,
    roll,
    structure,
    transcript,
)

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
    taken = roll(renderer, family, data.draw(openings(family)), planned)

    for plan, each in zip(planned, taken, strict=True):
        meant = planned_message(family, plan)
        assert each.message.content == meant.content
        assert each.message.reasoning_content == meant.reasoning_content
        assert [c.function for c in each.message.tool_calls] == [c.function for c in meant.tool_calls]

    branches = branches_of("run/g000000/r0", transcript(taken))
    assert [turn for branch in branches for turn in branch.turns] == list(range(len(taken)))
    for branch in branches:
        assert len(branch.ids) == len(branch.mask) == len(branch.logprobs)
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
            assert without_empty_thoughts(renderer.decode(branch.ids)) == without_empty_thoughts(shown)

    begun = [branch.turns[0] for branch in branches]
    assert begun == [turn for turn, each in enumerate(taken) if not each.bridged]
    rewritten = family.moves_history or (family.reasons and not thinking)
    for turn in begun[1:]:
        assert rewritten and taken[turn].before[-1].role == "user"


def without_empty_thoughts(text: str) -> str:
    """A template leaves them out of earlier turns; where they were sampled they stay."""
    return re.sub(r"<think>\s*</think>\s*", "", text)


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
    taken = roll(renderer, family, data.draw(openings(family)), data.draw(plans(family)))
    for before, each in itertools.pairwise(taken):
        prior = PriorTurn(messages=(*before.before, before.message), tokens=before.tokens)
        restored = PriorTurn.model_validate_json(prior.model_dump_json())
        assert again.next_prompt(each.before, TOOLS, restored) == each.tokens.prompt_ids


@pytest.mark.parametrize(("name", "packaged"), sorted(FORMATS))
@EXAMPLES
@given(st.data())
def test_a_turn_cut_off_anywhere_is_extended_or_rendered_afresh(
    name: str, packaged: bool, open_family: OpenFamily, data: st.DataObject
) -> None:
    """Within a call, a think block, the letters of a token or of a character."""
    family = FAMILIES[name]
    renderer = open_family(name, packaged=packaged)
    (whole,) = roll(renderer, family, data.draw(openings(family)), [data.draw(plans(family))[0]])
    cut = whole.tokens.ids[: data.draw(st.integers(0, len(whole.tokens.ids) - 1))]
    tokens = whole.tokens.model_copy(update={"ids": cut})
    message = renderer.parse(cut, TOOLS, prompt_ids=tokens.prompt_ids, turn_key="turn/0000").message
    assert ChatMessage.model_validate_json(message.model_dump_json()) == message
    results = [ChatMessage(role="tool", tool_call_id=each.id, content="a") for each in message.tool_calls]
    history = (*whole.before, message, *(results or [ChatMessage(role="user", content="Go on.")]))
    prior = PriorTurn(messages=(*whole.before, message), tokens=tokens)
    prompt, before = renderer.next_prompt(history, TOOLS, prior), (*tokens.prompt_ids, *cut)
    assert prompt[: len(before)] == before or prompt == renderer.render(history, TOOLS)


@pytest.mark.parametrize(("name", "packaged"), sorted(FORMATS))
@EXAMPLES
@given(st.data())
def test_what_looks_like_a_token_is_text(
    name: str, packaged: bool, open_family: OpenFamily, data: st.DataObject
) -> None:
    """In what tools return all of it; in what is said, what could end it or begin something else."""
    family = FAMILIES[name]
    renderer = open_family(name, packaged=packaged)
    tokens = family.tokens.split()
    structural = [
        token for token in tokens if not re.fullmatch(r"</?\w+>", token) or token in ("</s>", "<s>")
    ]
    returned, said = (
        data.draw(st.lists(st.sampled_from(each)).map("".join)) for each in (tokens, structural)
    )

    def conversation(result: str, said: str) -> tuple[ChatMessage, ...]:
        function = FunctionCall(name="terminal", arguments=json.dumps({"command": f"echo {said}"}))
        call = ToolCall(id=family.id("terminal", 0) if family.id else "0" * 9, function=function)
        turn = ChatMessage(role="assistant", tool_calls=(call,))
        answer = ChatMessage(role="tool", tool_call_id=call.id, name="terminal", content=f"a{result}b")
        return (ChatMessage(role="user", content=f"a{said}b"), turn, answer)

    hostile, calm = conversation(returned, said), conversation("", "")
    ids = renderer.render(hostile, TOOLS)
    assert structure(renderer, ids) == structure(renderer, renderer.render(calm, TOOLS))
    assert f"a{returned}b" in renderer.decode(ids) and f"a{said}b" in renderer.decode(ids)
    asked = renderer.render(hostile[:1], TOOLS)
    sampled = (*encode(renderer, "Done."), renderer.stop_token_ids[0])
    for new in (ChatMessage(role="user", content=f"a{said}b"), hostile[2]):
        bridged = renderer.bridge(asked, sampled, [new], TOOLS)
        assert bridged is None or f"a{said if new.role == 'user' else returned}b" in renderer.decode(
            bridged[len(asked) :]
        )
