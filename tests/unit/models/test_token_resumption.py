"""Interrupted turns go on from their tokens; with noise keyed by position they become what they would have been."""

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from clotho.embedded.model import EmbeddedModelServer
from clotho.embedded.model.bundled import BUNDLED, TINY
from clotho.embedded.model.tokenizer import Tokenizer
from clotho.errors import ModelUnavailable, StoreUnavailable
from clotho.identifiers.ids import derived_seed
from clotho.identifiers.keys import stream_prefix
from clotho.journal import Journal
from clotho.journal.folder import FilesystemStore
from clotho.models.backend import Inference, SampledTurn, TurnCall, VersionSpan
from clotho.models.messages import ChatMessage
from clotho.models.model_http import ModelHTTP
from clotho.models.partial_turn import PartialTurn, StreamEntry
from clotho.models.sampling import Sampling
from clotho.models.token_exact import RenderingThread, TokenExact
from clotho.models.token_server import TokenChunk
from clotho.models.write_ahead import FlushPolicy, WriteAhead
from clotho.testing.scripted_model import serving
from tests.token_servers import Relay, SequenceSampler

Open = Callable[..., TokenExact]
KEY = "run/g000001/r0/turn/0000"
NOTHING: Mapping[str, object] = {}
TASK = ChatMessage(role="user", content="Write the text hello to the file /work/greeting.txt")


def call(key: str = KEY, sampling: Mapping[str, object] = NOTHING) -> TurnCall:
    fields = {"seed": 11, "max_tokens": 200, **sampling}
    return TurnCall(key=key, model=TINY, messages=(TASK,), sampling=Sampling.model_validate(fields))


async def undisturbed(open_backend: Open, url: str) -> SampledTurn:
    return await open_backend(url).sample_turn(call(KEY[:-1] + "9"))


@pytest.mark.parametrize("inference", [Inference.VLLM_GENERATE, Inference.VLLM_COMPLETIONS])
async def test_a_turn_cut_off_three_times_is_what_it_would_have_been(
    embedded_model: EmbeddedModelServer, open_backend: Open, inference: Inference
) -> None:
    """Each attempt is a process of its own: nothing but the journal connects them."""
    expected = await undisturbed(open_backend, embedded_model.url)
    cuts = iter((5, 1, 12))
    relay = Relay(embedded_model.url, cut=lambda key, request: next(cuts, None))
    async with serving(relay) as url:
        for _ in range(3):
            with pytest.raises(ModelUnavailable):
                await open_backend(url, inference).sample_turn(call())
        turn = await open_backend(url, inference).sample_turn(call())
    assert expected.tokens is not None and turn.tokens is not None
    assert turn.tokens.ids == expected.tokens.ids
    assert turn.tokens.logprobs == expected.tokens.logprobs
    assert turn.tokens.prompt_ids == expected.tokens.prompt_ids
    assert turn.tokens.resumed_at == (5, 6, 18)
    assert turn.message == expected.message
    assert turn.finish_reason == expected.finish_reason
    if inference is Inference.VLLM_GENERATE:
        assert turn.tokens.versions == expected.tokens.versions
    for (key, body), offset in zip(relay.asked, (0, 5, 6, 18), strict=True):
        sent = body.get("sampling_params", body)
        assert (sent["seed"], sent["max_tokens"]) == (11, 200 - offset)
        assert key == (f"{KEY}/{offset}" if offset else KEY)


async def test_what_came_in_before_is_written_beside_the_stream(
    embedded_model: EmbeddedModelServer, open_backend: Open, journal: Journal
) -> None:
    turn = await open_backend(
        embedded_model.url, flush_policy=FlushPolicy(tokens=10, seconds=60)
    ).sample_turn(call())
    entries = [
        entry
        for entry in await journal.read_many(await journal.keys(stream_prefix(KEY)), StreamEntry)
        if entry
    ]
    assert turn.tokens is not None and entries
    ahead = [token for entry in entries for token in entry.ids]
    assert tuple(ahead) == turn.tokens.ids[: len(ahead)]
    assert entries[0].prompt_ids == turn.tokens.prompt_ids
    assert all(len(entry.ids) >= 10 and entry.prompt_ids == () for entry in entries[1:])
    await journal.write(KEY, StreamEntry(offset=0, ids=(), logprobs=(), started=0, seconds=0))
    await journal.seal("run/g000001/r0")
    assert await journal.keys("run/g000001/r0/") == ["run/g000001/r0/sealed"]


async def test_a_seed_that_would_repeat_its_numbers_is_another_one_from_there(open_backend: Open) -> None:
    cuts = iter((4,))
    sampler = SequenceSampler(length=1e9, cut=lambda key: next(cuts, None) if "/turn/" in key else None)
    async with serving(sampler) as upstream:
        relay = Relay(upstream.removesuffix("/v1"))
        async with serving(relay) as url:
            with pytest.raises(ModelUnavailable):
                await open_backend(url).sample_turn(call(sampling={"max_tokens": 12}))
            turn = await open_backend(url).sample_turn(call(sampling={"max_tokens": 12}))
        asked = [body["sampling_params"] for _, body in relay.asked]
    assert turn.tokens is not None and len(turn.tokens.ids) == 12
    assert turn.tokens.resumed_at == (4,)
    assert [each["seed"] for each in asked] == [11, derived_seed(11, 4)]
    assert turn.finish_reason == "length"


@pytest.mark.parametrize(
    ("text", "sampling", "reason"),
    [
        ("Done.<|im_end|>", {}, ("stop", 2)),
        ("Done. STOP", {"stop": ("STOP",)}, ("stop", "STOP")),
        ("Done.", {"max_tokens": 2}, ("length", None)),
    ],
)
async def test_a_write_ahead_that_has_ended_is_the_turn(
    embedded_model: EmbeddedModelServer,
    open_backend: Open,
    journal: Journal,
    rendering: RenderingThread,
    text: str,
    sampling: dict[str, object],
    reason: tuple[str, object],
) -> None:
    """Asking on would sample somebody else's turn, or be refused."""
    renderer = await rendering.renderer()
    relay = Relay(embedded_model.url)
    async with serving(relay) as url:
        backend = open_backend(url)
        prompt_ids = renderer.render((TASK,))
        ids = tuple(encode(text))
        ahead = WriteAhead(journal, KEY, FlushPolicy())
        turn = PartialTurn(prompt_ids, renderer.vocabulary_size)
        turn.begin_request("v1")
        turn.ids += ids
        turn.logprobs += [-0.5] * len(ids)
        await ahead.flush(turn)
        sampled = await backend.sample_turn(call(sampling=sampling))
    assert relay.asked == []
    assert (sampled.finish_reason, sampled.stop_reason) == reason
    assert sampled.tokens is not None and sampled.tokens.ids == ids
    assert sampled.tokens.resumed_at == ()
    assert str(sampled.message.content).startswith("Done.")


def encode(text: str) -> list[int]:
    return Tokenizer(BUNDLED).encode(text)


@pytest.mark.parametrize("inference", [Inference.VLLM_GENERATE, Inference.VLLM_COMPLETIONS])
async def test_a_stop_string_in_two_parts_ends_the_turn_where_it_would_have(
    embedded_model: EmbeddedModelServer, open_backend: Open, rendering: RenderingThread, inference: Inference
) -> None:
    """A server that is asked to go on doesn't know that it sampled the beginning of one."""
    whole = (await undisturbed(open_backend, embedded_model.url)).tokens
    assert whole is not None
    renderer = await rendering.renderer()
    first, second = (renderer.decode(whole.ids[at : at + 1]) for at in (6, 7))
    sampling = {"stop": (first[-1:] + second[:1],)}
    expected = await open_backend(embedded_model.url).sample_turn(call(KEY[:-1] + "8", sampling))
    assert expected.tokens is not None and len(expected.tokens.ids) == 8
    relay = Relay(embedded_model.url, cut=lambda key, request: 7 if request == 1 else None)
    async with serving(relay) as url:
        with pytest.raises(ModelUnavailable):
            await open_backend(url, inference).sample_turn(call(sampling=sampling))
        turn = await open_backend(url, inference).sample_turn(call(sampling=sampling))
    assert turn.tokens is not None and turn.tokens.resumed_at == (7,)
    assert (turn.tokens.ids, turn.tokens.logprobs) == (expected.tokens.ids, expected.tokens.logprobs)
    assert (turn.finish_reason, turn.stop_reason) == ("stop", *sampling["stop"])
    assert all(span.end <= 8 for span in turn.tokens.versions)
    assert turn.message == expected.message


async def test_of_two_attempts_at_once_one_goes_on(journal: Journal) -> None:
    """A worker that was cut off from the cluster, and the one that took its place."""

    def grown(token: int, count: int) -> PartialTurn:
        turn = PartialTurn((1, 2), 572)
        turn.ids, turn.logprobs = [token] * count, [-1.0] * count
        return turn

    first = WriteAhead(journal, KEY, FlushPolicy(tokens=1, seconds=0))
    await first.flush(grown(7, 3))
    second = WriteAhead(journal, KEY, FlushPolicy(tokens=1, seconds=0))
    resumed = PartialTurn.resumed(await second.read(), 572)
    resumed.ids += [9]
    resumed.logprobs += [-1.0]
    await second.flush(resumed)
    with pytest.raises(ModelUnavailable, match="another attempt"):
        await first.flush(grown(7, 6))


class Away(FilesystemStore):
    async def create(self, key: str, body: bytes) -> bool:
        raise StoreUnavailable("away")


async def test_a_store_that_is_away_does_not_stop_the_stream(
    embedded_model: EmbeddedModelServer, rendering: RenderingThread, tmp_path: Path
) -> None:
    connection = ModelHTTP(embedded_model.url)
    backend = TokenExact(
        connection, rendering, Journal(Away(tmp_path)), Inference.TOKENS, FlushPolicy(tokens=1, seconds=0)
    )
    turn = await backend.sample_turn(call())
    await connection.aclose()
    assert turn.tokens is not None and turn.finish_reason == "stop"


def test_versions_of_what_broke_off_are_proved_or_unknown() -> None:
    """Named at a stream's end only: between two sightings of one version there was no other."""

    def turn(before: str | None, after: str) -> tuple[VersionSpan, ...]:
        began = PartialTurn((1,), 10)
        began.begin_request(before)
        began.add(TokenChunk(ids=(1, 2), logprobs=(-1.0, -1.0)))
        resumed = PartialTurn.resumed([began.entry(0)], 10)
        resumed.begin_request(after)
        resumed.add(
            TokenChunk(ids=(3,), logprobs=(-1.0,), versions=(VersionSpan(version=after, start=0, end=1),))
        )
        return resumed.tokens(Inference.VLLM_GENERATE, "raw").versions

    assert turn("a", "a") == (VersionSpan(version="a", start=0, end=3),)
    assert turn("a", "b") == (VersionSpan(version="b", start=2, end=3),)
    assert turn(None, "b") == (VersionSpan(version="b", start=2, end=3),)


def test_spans_of_a_stream_that_repeats_itself_are_joined() -> None:
    turn = PartialTurn((1,), 10)
    for start, version in ((0, "a"), (1, "a"), (2, "b")):
        turn.add(
            TokenChunk(
                ids=(1,),
                logprobs=(-1.0,),
                versions=(VersionSpan(version=version, start=start, end=start + 1),),
            )
        )
    spans = turn.tokens(Inference.SGLANG, "raw").versions
    assert [(span.version, span.start, span.end) for span in spans] == [("a", 0, 2), ("b", 2, 3)]
