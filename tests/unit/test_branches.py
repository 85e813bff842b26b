"""Branches of a rollout: what extends one, what starts one, what a journal may not hold, and restarts."""

import itertools
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clotho.errors import JournalCorrupt
from clotho.identifiers.ids import call_id
from clotho.identifiers.keys import call_key, prompt_key, turn_key
from clotho.journal import Journal
from clotho.journal.folder import FilesystemStore
from clotho.models.backend import SampledTokens, VersionSpan
from clotho.models.messages import ChatMessage
from clotho.models.rendering.resolve import open_renderer
from clotho.rollouts.branches import branches_of
from clotho.rollouts.call import CallEntry
from clotho.rollouts.rollout import Prompt
from clotho.rollouts.transcript import Step, Transcript, read_transcript
from clotho.rollouts.turn import TurnEntry
from tests.unit.rendering.families import POLICY
from tests.unit.rendering.rollouts import TOOLS, encode, sampled_turn

ROLLOUT = "run/g000000/r0"
ASKED = ChatMessage(role="user", content="Write the word moon into the file note.txt.")
SAID = ChatMessage(role="assistant", content="said")
IDS = st.lists(st.integers(0, 3), max_size=4).map(tuple)


def tokens(
    prompt: tuple[int, ...], ids: tuple[int, ...], versions: tuple[VersionSpan, ...] = ()
) -> SampledTokens:
    return SampledTokens(
        prompt_ids=prompt,
        ids=ids,
        logprobs=tuple(-1.0 - place for place in range(len(ids))),
        logprobs_mode="raw",
        versions=versions,
    )


def transcript(*turns: SampledTokens | None, temperature: float = 1.0) -> Transcript:
    steps = (Step(turn=TurnEntry(sampled=sampled_turn(SAID, turn, temperature)), calls=()) for turn in turns)
    return Transcript(prompt=Prompt(item={}, messages=(ASKED,), seed=1), steps=tuple(steps))


@settings(max_examples=100, deadline=None, derandomize=True)
@given(st.lists(st.tuples(st.booleans(), IDS, IDS), max_size=8))
def test_every_sampled_token_is_in_one_branch_behind_what_it_was_sampled_from(
    plan: list[tuple[bool, tuple[int, ...], tuple[int, ...]]],
) -> None:
    turns: list[SampledTokens] = []
    for extends, added, ids in plan:
        before = (*turns[-1].prompt_ids, *turns[-1].ids) if turns and extends else ()
        turns.append(tokens((*before, *added), ids))
    branches = branches_of(ROLLOUT, transcript(*turns))
    assert sorted(turn for branch in branches for turn in branch.turns) == list(range(len(turns)))
    assert all(list(branch.turns) == sorted(branch.turns) for branch in branches)
    firsts = [branch.turns[0] for branch in branches]
    assert firsts == sorted(firsts)
    assert [branch.index for branch in branches] == list(range(len(branches)))
    bare = branches_of(ROLLOUT, transcript(*turns), with_messages=False)
    assert bare == tuple(branch.model_copy(update={"messages": ()}) for branch in branches)
    for branch in branches:
        trained = [place for place, sampled in enumerate(branch.mask) if sampled]
        assert trained == [place for span in branch.spans for place in range(span.start, span.end)]
        for span in branch.spans:
            turn = turns[span.turn]
            assert branch.ids[: span.end] == (*turn.prompt_ids, *turn.ids)
            assert branch.logprobs[span.start : span.end] == turn.logprobs
        assert all(
            logprob == 0.0
            for logprob, trained in zip(branch.logprobs, branch.mask, strict=True)
            if not trained
        )
    for branch, following in itertools.pairwise(branches):
        assert turns[following.turns[0]].prompt_ids[: len(branch.ids)] != branch.ids


def test_a_conversation_goes_on_after_turns_of_another_one() -> None:
    """As that of a program's sub-agent, which takes its turns in between."""
    first, beside = tokens((5, 6), (7,)), tokens((8,), (9,))
    later = tokens((5, 6, 7, 1), (2,))
    own, other = branches_of(ROLLOUT, transcript(first, beside, later))
    assert (own.turns, own.ids) == ((0, 2), (5, 6, 7, 1, 2))
    assert (other.turns, other.ids) == ((1,), (8, 9))


def test_versions_are_placed_within_the_branch() -> None:
    first = tokens((5, 6), (7, 8, 9), (VersionSpan(version="a", start=0, end=2),))
    second = tokens((5, 6, 7, 8, 9, 1), (2, 3), (VersionSpan(version="b", start=0, end=2),))
    (branch,) = branches_of(ROLLOUT, transcript(first, second, temperature=0.7))
    assert branch.ids == (5, 6, 7, 8, 9, 1, 2, 3)
    assert branch.mask == (False, False, True, True, True, False, True, True)
    assert branch.versions == (
        VersionSpan(version="a", start=2, end=4),
        VersionSpan(version="b", start=6, end=8),
    )
    assert branch.messages == (ASKED, SAID, SAID)


def test_turns_without_tokens_are_in_no_branch() -> None:
    assert branches_of(ROLLOUT, transcript(None, None)) == ()
    assert [branch.turns for branch in branches_of(ROLLOUT, transcript(None, tokens((1,), (2,))))] == [(1,)]


@pytest.mark.parametrize(
    "damaged",
    [
        tokens((1,), (2, 3)).model_copy(update={"logprobs": (-1.0,)}),
        tokens((1,), (2, 3), (VersionSpan(version="a", start=0, end=3),)),
        tokens(
            (1,), (2, 3), (VersionSpan(version="a", start=1, end=2), VersionSpan(version="b", start=0, end=1))
        ),
    ],
)
def test_tokens_that_dont_fit_together_name_their_entry(damaged: SampledTokens) -> None:
    with pytest.raises(JournalCorrupt, match="run/g000000/r0/turn/0001"):
        branches_of(ROLLOUT, transcript(tokens((1,), (2,)), damaged))


async def test_a_rollout_read_at_any_turn_goes_on_from_the_same_tokens(tmp_path: Path) -> None:
    """With the embedded policy's tokenizer: everything that a restarted process knows is in the journal."""
    renderer = open_renderer(str(POLICY), tool_call_parser="hermes")
    journal = Journal(FilesystemStore(tmp_path))
    await journal.write(prompt_key(ROLLOUT), Prompt(item={}, messages=(ASKED,), seed=1))
    prompts = []
    for turn in range(4):
        read = await read_transcript(journal, ROLLOUT, turn)
        prompts.append(renderer.next_prompt(read.messages, TOOLS, read.prior))
        written = (
            f'<tool_call>\n{{"name": "terminal", "arguments": {{"command": "ls {turn}"}}}}\n</tool_call>'
        )
        ids = encode(renderer, "".join(f"{written}\n" if turn == 1 else written) + "<|im_end|>")
        key = turn_key(ROLLOUT, turn)
        message = renderer.parse(ids, TOOLS, prompt_ids=prompts[-1], turn_key=key).message
        await journal.write(key, TurnEntry(sampled=sampled_turn(message, tokens(prompts[-1], ids))))
        await journal.write(call_key(ROLLOUT, call_id(turn, 0)), call(f"file {turn}"))

    for turn in range(4):
        again = open_renderer(str(POLICY), tool_call_parser="hermes")
        read = await read_transcript(Journal(FilesystemStore(tmp_path)), ROLLOUT, turn)
        assert again.next_prompt(read.messages, TOOLS, read.prior) == prompts[turn]
    (branch,) = branches_of(ROLLOUT, await read_transcript(Journal(FilesystemStore(tmp_path)), ROLLOUT, 4))
    assert branch.turns == (0, 1, 2, 3)
    assert branch.ids[: len(prompts[3])] == prompts[3]
    assert branch.messages == (*read.messages, message)


def call(content: str) -> CallEntry:
    return CallEntry(
        tool="terminal",
        content=content,
        error=None,
        state={},
        lease=None,
        started=0.0,
        seconds=0.0,
        changes=False,
    )
