"""Answers that can't be trained on are typed errors, and none of them is written ahead."""

import math
from collections.abc import Callable
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from clotho.embedded.model import EmbeddedModelServer
from clotho.embedded.model.bundled import TINY
from clotho.errors import ClothoError, ContextOverflow, InexactTokens, ModelRejected, ModelUnavailable
from clotho.identifiers.keys import stream_prefix
from clotho.journal import Journal
from clotho.models.backend import Inference, TurnCall
from clotho.models.messages import ChatMessage
from clotho.models.sampling import Sampling
from clotho.models.token_exact import TokenExact
from clotho.models.token_server import paired
from clotho.models.write_ahead import FlushPolicy
from clotho.testing.scripted_model import serving
from tests.token_servers import Json, Relay

Open = Callable[..., TokenExact]
KEY = "run/g000001/r0/turn/0000"
BOTH = (Inference.VLLM_GENERATE, Inference.VLLM_COMPLETIONS)


def call() -> TurnCall:
    task = ChatMessage(role="user", content="Write the text hello to the file /work/greeting.txt")
    return TurnCall(key=KEY, model=TINY, messages=(task,), sampling=Sampling(seed=11, max_tokens=60))


def late(change: Callable[[Json], None]) -> Callable[[Json], Json]:
    """Applies to the fifth event of a turn with tokens, whose prompt ids come with its first."""
    seen = 0

    def twist(event: Json) -> Json:
        nonlocal seen
        for choice in event["choices"]:
            seen += 1
            if seen >= 5:
                change(choice)
        return event

    return twist


def without_logprobs(choice: Json) -> None:
    choice["logprobs"] = None


def one_id_less(choice: Json) -> None:
    choice["token_ids"] = choice["token_ids"][:-1]


def dropped(choice: Json) -> None:
    """An id and its logprob are lost together: only the count of tokens tells."""
    choice["token_ids"] = []
    if "token_logprobs" in choice["logprobs"]:
        choice["logprobs"]["token_logprobs"] = []
    else:
        choice["logprobs"]["content"] = []


def no_ids(choice: Json) -> None:
    choice["token_ids"] = None


def one_logprob_more(choice: Json) -> None:
    rows = choice["logprobs"].get("token_logprobs", choice["logprobs"].get("content"))
    rows.append(rows[-1])


def logprob(value: float | None) -> Callable[[Json], None]:
    def change(choice: Json) -> None:
        logprobs = choice["logprobs"]
        if "token_logprobs" in logprobs:
            logprobs["token_logprobs"][0] = value
        else:
            logprobs["content"][0]["logprob"] = value

    return change


def outside(choice: Json) -> None:
    choice["token_ids"][0] = 90_000
    if "content" in choice["logprobs"]:
        choice["logprobs"]["content"][0]["token_id"] = 90_000


@pytest.mark.parametrize("inference", BOTH)
@pytest.mark.parametrize(
    ("change", "said"),
    [
        (without_logprobs, "no logprobs"),
        (one_id_less, "0 token ids with 1 logprobs|other tokens than it sampled"),
        (dropped, "token ids of|weight versions of tokens"),
        (no_ids, "no token ids|other tokens"),
        (one_logprob_more, "1 token ids with 2 logprobs|other tokens"),
        (logprob(None), "logprob of None"),
        (logprob(-math.inf), "logprob of -inf"),
        (logprob(-9999.0), "logprob of -9999"),
        (logprob(math.nan), "logprob of nan"),
        (outside, "sampled 90000, outside the vocabulary of 572"),
    ],
)
async def test_what_cannot_be_trained_on_is_refused(
    embedded_model: EmbeddedModelServer,
    open_backend: Open,
    journal: Journal,
    inference: Inference,
    change: Callable[[Json], None],
    said: str,
) -> None:
    relay = Relay(embedded_model.url)
    async with serving(relay) as url:
        backend = open_backend(url, inference, FlushPolicy(tokens=1_000, seconds=60))
        await backend.check(TINY)
        relay.twist = late(change)
        with pytest.raises(InexactTokens, match=said):
            await backend.sample_turn(call())
    assert await journal.keys(stream_prefix(KEY)) == []


@pytest.mark.parametrize("inference", BOTH)
async def test_more_tokens_than_asked_for_are_refused(
    embedded_model: EmbeddedModelServer, open_backend: Open, journal: Journal, inference: Inference
) -> None:
    def repeat(event: Json) -> Json:
        event.pop("usage", None)
        for choice in event["choices"]:
            choice["token_ids"] = choice["token_ids"] * 100
            for rows in choice["logprobs"].values():
                rows.extend(rows * 99)
        return event

    relay = Relay(embedded_model.url)
    async with serving(relay) as url:
        backend = open_backend(url, inference, FlushPolicy(tokens=1_000, seconds=60))
        await backend.check(TINY)
        relay.twist = repeat
        with pytest.raises(InexactTokens, match="more than the 60 tokens it was asked for"):
            await backend.sample_turn(call())
    assert await journal.keys(stream_prefix(KEY)) == []


class Answers:
    """A server that answers every POST alike."""

    def __init__(self, status: int, body: str, kind: str = "application/json") -> None:
        answer = Response(body, status, media_type=kind)

        async def post(_: Request) -> Response:
            return answer

        self.app = Starlette(routes=[Route("/{path:path}", post, methods=["POST"])])


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        (400, "This model's maximum context length is 512 tokens. Please reduce it.", ContextOverflow),
        (401, "{}", ModelRejected),
        (404, '{"error": {"message": "no such model"}}', ModelRejected),
        (429, "slow down", ModelUnavailable),
        (500, "oops", ModelUnavailable),
        (200, "<html>gateway</html>", ModelUnavailable),
        (200, 'data: {"choices": 3}\n\n', ModelUnavailable),
        (200, 'data: {"error": {"message": "died", "code": 500}}\n\n', ModelUnavailable),
        (200, 'data: {"choices": [], "usage": null}\n\ndata: [DONE]\n\n', ModelUnavailable),
        (200, 'data: {"choices": [{"token_ids": [], "finish_reason": "abort"}]}\n\n', ModelUnavailable),
    ],
)
@pytest.mark.parametrize("inference", BOTH)
async def test_other_answers_go_through_the_one_classifier(
    open_backend: Open, inference: Inference, status: int, body: str, kind: type[ClothoError]
) -> None:
    async with serving(Answers(status, body)) as url:
        with pytest.raises(kind):
            await open_backend(url, inference).sample_turn(call())


async def test_a_server_without_any_token_exact_endpoint_says_what_each_answered(open_backend: Open) -> None:
    async with serving(Answers(404, '{"error": {"message": "Not Found"}}')) as url:
        with pytest.raises(ModelRejected, match=r"vllm-generate: .*vllm-completions: .*sglang: "):
            await open_backend(url).check(TINY)


@pytest.mark.parametrize(
    ("ids", "logprobs"), [([1], None), (None, [0.0]), ([1, 2], [-1.0]), ([1], [0.5]), ([1], [-math.inf])]
)
def test_pairs_that_are_none(ids: Any, logprobs: Any) -> None:
    with pytest.raises(InexactTokens):
        paired(ids, logprobs)
