"""Which weights a token was sampled from: the server's word, else the trainer's step as known then."""

from collections.abc import Callable
from pathlib import Path

import pytest

from activities.ttl_cache import TTLCache
from clotho.embedded.model import EmbeddedModelServer
from clotho.embedded.model.bundled import TINY
from clotho.errors import ModelUnavailable
from clotho.journal import Journal
from clotho.journal.folder import FilesystemStore
from clotho.models.backend import Inference, TurnCall, VersionSpan, at_step, step_of
from clotho.models.messages import ChatMessage
from clotho.models.partial_turn import PartialTurn
from clotho.models.sampling import Sampling
from clotho.models.token_exact import TokenExact
from clotho.models.token_server import TokenChunk
from clotho.runs.trainer_steps import known_step, note_step
from clotho.testing.scripted_model import serving
from tests.token_servers import Json, Relay, SequenceSampler

Open = Callable[..., TokenExact]


def call(key: str = "a/turn/0000", trainer_step: int | None = None) -> TurnCall:
    task = ChatMessage(role="user", content="Write the text hello to the file /work/greeting.txt")
    sampling = Sampling(seed=11, max_tokens=200)
    return TurnCall(key=key, model=TINY, messages=(task,), sampling=sampling, trainer_step=trainer_step)


def spans(turn: PartialTurn) -> list[tuple[str, int, int]]:
    versions = turn.tokens(Inference.VLLM_GENERATE, "raw").versions
    return [(span.version, span.start, span.end) for span in versions]


def sampling(turn: PartialTurn, step: int | None, ids: int, *named: VersionSpan) -> None:
    turn.begin_request(None, step)
    turn.add(TokenChunk(ids=(1,) * ids, logprobs=(-1.0,) * ids, versions=named))


def interrupted(*steps: int | None) -> PartialTurn:
    """Two tokens asked for at each step, every time by another process, and the last one goes on."""
    turn, entries = PartialTurn((7,), 10), []
    for step in steps:
        sampling(turn, step, 2)
        entries.append(turn.entry(len(turn.ids) - 2))
        turn = PartialTurn.resumed(entries, 10)
    return turn


@pytest.mark.parametrize(
    ("steps", "known"),
    [
        ((3,), [("step:3", 0, 2)]),
        ((3, 3), [("step:3", 0, 4)]),
        ((3, 5), [("step:3", 0, 2), ("step:5", 2, 4)]),
        ((None, 5), [("step:5", 2, 4)]),
        ((None,), []),
    ],
)
def test_tokens_have_the_step_at_which_they_were_asked_for(
    steps: tuple[int | None, ...], known: list[tuple[str, int, int]]
) -> None:
    assert spans(interrupted(*steps)) == known


def test_the_servers_word_comes_before_the_step() -> None:
    turn = interrupted(3)
    sampling(turn, 4, 4, VersionSpan(version="9", start=1, end=3))
    assert spans(turn) == [("step:3", 0, 2), ("step:4", 2, 3), ("9", 3, 5), ("step:4", 5, 6)]
    whole = PartialTurn((7,), 10)
    sampling(whole, 4, 3, VersionSpan(version="9", start=0, end=3))
    assert spans(whole) == [("9", 0, 3)]


def test_versions_that_are_numbers_stand_for_steps() -> None:
    assert [step_of(version) for version in ("7", at_step(7), "step:x", "ab12", "")] == [
        7,
        7,
        None,
        None,
        None,
    ]


async def test_a_server_without_versions_has_the_trainers_steps(open_backend: Open) -> None:
    """In the journal, and as the salt of its prompt cache."""
    cuts = {"a/turn/0000": 3}
    sampler = SequenceSampler(cut=lambda key: cuts.pop(key, None))
    async with serving(sampler) as upstream, serving(relay := Relay(upstream.removesuffix("/v1"))) as url:
        backend = open_backend(url)
        with pytest.raises(ModelUnavailable):
            await backend.sample_turn(call("a/turn/0000", trainer_step=11))
        turns = [
            await backend.sample_turn(call("a/turn/0000", trainer_step=12)),
            await backend.sample_turn(call("a/turn/0001")),
        ]
    resumed, unknown = (turn.tokens for turn in turns)
    assert resumed is not None and unknown is not None
    assert [(span.version, span.start) for span in resumed.versions] == [("step:11", 0), ("step:12", 3)]
    assert resumed.versions[-1].end == len(resumed.ids)
    assert unknown.versions == ()
    assert [body.get("cache_salt") for _, body in relay.asked] == ["step:11", "step:12", None]


async def test_a_server_with_versions_keeps_its_own(
    open_backend: Open, embedded_model: EmbeddedModelServer
) -> None:
    async with serving(relay := Relay(embedded_model.url)) as url:
        turn = await open_backend(url).sample_turn(call(trainer_step=12))
    assert turn.tokens is not None
    (span,) = turn.tokens.versions
    assert not span.version.startswith("step:")
    assert [body["cache_salt"] for _, body in relay.asked] == [span.version]


@pytest.mark.parametrize("inference", [Inference.VLLM_GENERATE, Inference.VLLM_COMPLETIONS])
async def test_default_is_the_name_of_no_version(
    open_backend: Open, embedded_model: EmbeddedModelServer, inference: Inference
) -> None:
    def unnamed(event: Json) -> Json:
        for choice in event.get("choices", ()):
            for span in choice.get("weight_versions") or ():
                span["version"] = "default"
        return event

    async with serving(Relay(embedded_model.url, twist=unnamed)) as url:
        turn = await open_backend(url, inference).sample_turn(call(trainer_step=12))
    assert turn.tokens is not None
    assert [span.version for span in turn.tokens.versions] == ["step:12"]


async def test_the_last_step_that_was_noted_is_known(tmp_path: Path) -> None:
    """Also when the trainer starts over; and a run's steps take no more room in time."""
    journal = Journal(FilesystemStore(tmp_path))
    known = [await known_step(journal, "run")]
    for step in (3, 3, 4, 5, 6, 0):
        await note_step(journal, "run", step)
        known.append(await known_step(Journal(FilesystemStore(tmp_path)), "run"))
    assert known == [None, 3, 3, 4, 5, 6, 0]
    assert len(await journal.keys("run/")) == 2


async def test_an_answer_is_given_again_and_an_error_is_not() -> None:
    asked: list[str] = []

    async def ask(name: str) -> int:
        asked.append(name)
        if len(asked) == 1:
            raise ModelUnavailable("away")
        return len(asked)

    recent = TTLCache(ask)
    with pytest.raises(ModelUnavailable):
        await recent.of("a")
    assert [await recent.of("a"), await recent.of("a"), await recent.of("b")] == [2, 2, 3]
    assert asked == ["a", "a", "b"]
