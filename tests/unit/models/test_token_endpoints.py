"""Both of vLLM's endpoints and SGLang's, over real HTTP: ids and logprobs are those that the server sampled."""

from collections.abc import Callable

import httpx
import pytest

from clotho.embedded.model import EmbeddedModelServer
from clotho.embedded.model.bundled import BUNDLED, TINY
from clotho.embedded.model.engine import Engine
from clotho.embedded.model.policy import Policy
from clotho.errors import ContextOverflow, InvalidInput
from clotho.models.backend import Inference, PriorTurn, SampledTurn, TurnCall
from clotho.models.messages import ChatMessage
from clotho.models.sampling import Sampling
from clotho.models.token_exact import TokenExact
from clotho.testing.scripted_model import serving
from tests.token_servers import Relay, SGLangShape

Open = Callable[..., TokenExact]
KEY = "run/g000001/r0/turn/0000"
TASK = ChatMessage(role="user", content="Write the text hello to the file /work/greeting.txt")
TOOL = {
    "type": "function",
    "function": {
        "name": "terminal",
        "description": "Run a command.",
        "parameters": {"type": "object", "properties": {"command": {"type": "string"}}},
    },
}


def call(key: str = KEY, **fields: object) -> TurnCall:
    fields = {"messages": (TASK,), "tools": (TOOL,), "sampling": Sampling(seed=11, max_tokens=200)} | fields
    return TurnCall.model_validate({"key": key, "model": TINY} | fields)


async def as_the_server_has_it(direct: httpx.AsyncClient, turn: SampledTurn) -> tuple[list[int], list[float]]:
    """The turn asked for again, in one piece, of the server itself."""
    assert turn.tokens is not None
    sampling = turn.sampling.model_dump(mode="json", exclude={"extra_body"}) | {"logprobs": 0}
    body = {"token_ids": turn.tokens.prompt_ids, "sampling_params": sampling}
    answer = (await direct.post("/inference/v1/generate", json=body)).raise_for_status().json()
    choice = answer["choices"][0]
    assert choice["finish_reason"] == turn.finish_reason
    return choice["token_ids"], [each["logprob"] for each in choice["logprobs"]["content"]]


@pytest.mark.parametrize("inference", [Inference.VLLM_GENERATE, Inference.VLLM_COMPLETIONS])
async def test_tokens_are_those_of_the_server(
    embedded_model: EmbeddedModelServer, direct: httpx.AsyncClient, open_backend: Open, inference: Inference
) -> None:
    relay = Relay(embedded_model.url)
    async with serving(relay) as url:
        turn = await open_backend(url, inference).sample_turn(call())
    tokens = turn.tokens
    assert tokens is not None and tokens.backend is inference
    assert (list(tokens.ids), list(tokens.logprobs)) == await as_the_server_has_it(direct, turn)
    assert tokens.logprobs_mode == "raw" and tokens.resumed_at == ()
    if inference is Inference.VLLM_GENERATE or tokens.versions:
        (version,) = tokens.versions
        assert (version.start, version.end) == (0, len(tokens.ids))
    assert (turn.usage.prompt_tokens, turn.usage.completion_tokens) == (
        len(tokens.prompt_ids),
        len(tokens.ids),
    )
    ((key, body),) = relay.asked
    sent = body.get("sampling_params", body)
    assert key == KEY
    assert sent | {"logprobs": 0} == sent
    explicit: dict[str, object] = {
        "temperature": 1.0,
        "top_p": 1.0,
        "top_k": -1,
        "min_p": 0.0,
        "repetition_penalty": 1.0,
    }
    explicit |= {"stop": [], "stop_token_ids": [2], "seed": 11, "max_tokens": 200}
    explicit |= {"presence_penalty": 0.0, "frequency_penalty": 0.0, "skip_special_tokens": False}
    assert {name: sent[name] for name in explicit} == explicit


async def test_the_next_turn_extends_what_was_sampled(
    embedded_model: EmbeddedModelServer, open_backend: Open
) -> None:
    backend = open_backend(embedded_model.url)
    first = await backend.sample_turn(call())
    assert first.tokens is not None and first.message.tool_calls
    before = (TASK, first.message)
    result = ChatMessage(role="tool", tool_call_id=first.message.tool_calls[0].id, content='{"output": ""}')
    second = await backend.sample_turn(
        call(
            KEY[:-1] + "1",
            messages=(*before, result),
            prior=PriorTurn(messages=before, tokens=first.tokens),
        )
    )
    assert second.tokens is not None
    known = (*first.tokens.prompt_ids, *first.tokens.ids)
    assert second.tokens.prompt_ids[: len(known)] == known
    assert len(second.tokens.prompt_ids) > len(known)


@pytest.mark.parametrize("increments", [False, True])
async def test_sglang(direct: httpx.AsyncClient, open_backend: Open, increments: bool) -> None:
    engine = Engine(Policy.load(BUNDLED))
    engine.start()
    server = SGLangShape(engine, increments)
    try:
        async with serving(server) as url:
            backend = open_backend(url)
            found = await backend.check(TINY)
            turn = await backend.sample_turn(call())
            with pytest.raises(ContextOverflow):
                await backend.sample_turn(
                    call(KEY + "1", messages=(TASK.model_copy(update={"content": "a b " * 600}),))
                )
    finally:
        engine.stop()
    assert turn.tokens is not None
    assert (found.backend, found.logprobs_mode, found.rng_scope) == (Inference.SGLANG, "raw", "position")
    assert (list(turn.tokens.ids), list(turn.tokens.logprobs)) == await as_the_server_has_it(direct, turn)
    (version,) = turn.tokens.versions
    assert (version.version, version.end) == (engine.policy.version, len(turn.tokens.ids))
    assert turn.usage.cached_prompt_tokens == 3
    sent = server.asked[-2]["sampling_params"]
    assert (sent["max_new_tokens"], sent["sampling_seed"], sent["top_k"]) == (200, 11, -1)


async def test_a_prompt_that_leaves_no_room_overflows_and_one_that_leaves_some_gets_that(
    embedded_model: EmbeddedModelServer, open_backend: Open
) -> None:
    backend = open_backend(embedded_model.url)
    long = TASK.model_copy(update={"content": "hello " * 2_000})
    with pytest.raises(ContextOverflow, match="context of 1024"):
        await backend.sample_turn(call(messages=(long,)))
    turn = await backend.sample_turn(call(sampling=Sampling(seed=1)))
    assert turn.tokens is not None and turn.sampling.max_tokens == 1024 - len(turn.tokens.prompt_ids)


@pytest.mark.parametrize(
    ("sampling", "said"),
    [
        (Sampling(seed=1, top_k=None), "not without top_k"),
        (Sampling(seed=1, extra_body={"seed": 2}), "extra_body can't set seed"),
    ],
)
async def test_what_is_sent_is_what_is_recorded(
    embedded_model: EmbeddedModelServer, open_backend: Open, sampling: Sampling, said: str
) -> None:
    with pytest.raises(InvalidInput, match=said):
        await open_backend(embedded_model.url).sample_turn(call(sampling=sampling))
