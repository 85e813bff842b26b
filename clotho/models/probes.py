"""Probes of a model server's capabilities, by sampling a few tokens."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass
from typing import Literal

from clotho.errors import InexactTokens, InvalidInput, ModelRejected, ModelUnavailable
from clotho.models.backend import Inference, LogprobsMode, ServerCapabilities
from clotho.models.listed_models import listed_models
from clotho.models.model_http import ModelHTTP
from clotho.models.partial_turn import PartialTurn
from clotho.models.sampling import Sampling
from clotho.models.sglang import SGLang
from clotho.models.token_server import TokenRequest, TokenServer
from clotho.models.vllm import VLLMCompletions, VLLMGenerate

SERVERS: tuple[type[TokenServer], ...] = (VLLMGenerate, VLLMCompletions, SGLang)
"""Endpoints, in the order in which they are tried."""
TOKENS = 16
SEED = 1
CONFUSING = 48
"""Tokens at the highest temperature, after which no model is certain of the next one."""
HIGHEST = 2.0
"""The highest temperature that OpenAI's API and vLLM allow."""
CLEAR = 0.1
"""Nats: more than batches and kernels change a logprob, less than the temperature changes TOKENS of them."""
CERTAIN = -1e-5
"""Logprob of the only token that could be sampled, up to rounding."""
RANDOM = -8.0
"""Summed logprob of tokens that aren't repeated by chance."""
ANY_TOKEN = 1 << 31
HOT = Sampling(temperature=HIGHEST, max_tokens=TOKENS, seed=SEED)


@dataclass(frozen=True)
class ProbedServer:
    server: TokenServer
    capabilities: ServerCapabilities


async def find_server(
    http: ModelHTTP, inference: Inference, model: str, prompt_ids: tuple[int, ...]
) -> tuple[TokenServer, PartialTurn]:
    """The requested endpoint, or the first that works, and its sample. Raises ModelRejected with the reasons."""
    asked = [server(http) for server in SERVERS if inference in (Inference.TOKENS, server.inference)]
    confusion = HOT.model_copy(update={"max_tokens": CONFUSING})
    refusals = []
    for server in asked:
        try:
            return server, await sample(server, model, prompt_ids, confusion)
        except (ModelRejected, InexactTokens) as refused:
            refusals.append(f"{server.inference}: {refused}")
    raise ModelRejected(f"the model server offers no token-exact inference: {'; '.join(refusals)}")


async def sample(
    server: TokenServer, model: str, prompt_ids: tuple[int, ...], sampling: Sampling
) -> PartialTurn:
    """Sample after `prompt_ids`, without stopping before max_tokens."""
    without_eos = sampling.model_copy(update={"extra_body": {"ignore_eos": True}})
    turn = PartialTurn(prompt_ids, ANY_TOKEN, budget=sampling.max_tokens)
    request = TokenRequest(key=f"probe/{model}", model=model, prompt_ids=prompt_ids, sampling=without_eos)
    stream: AsyncGenerator[object]
    async with aclosing(server.stream(request)) as stream:
        async for chunk in stream:
            turn.add(chunk)
    if not turn.ids:
        raise ModelUnavailable("the model server sampled nothing")
    return turn


async def logprobs_mode(server: TokenServer, model: str, prompt_ids: tuple[int, ...]) -> LogprobsMode:
    """Whether the most likely tokens' logprobs change with the temperature, or with cutting all others off."""
    # with top_k=1 the same tokens are sampled at both temperatures, so that only the logprobs can differ
    cold, hot, free = [
        await sample(server, model, prompt_ids, Sampling(**fields, max_tokens=TOKENS, seed=SEED))
        for fields in ({"top_k": 1}, {"top_k": 1, "temperature": HIGHEST}, {})
    ]
    if any(abs(a - b) > CLEAR for a, b in _alike(cold, hot)):
        return "processed"
    if any(logprob < -CLEAR for logprob in cold.logprobs):
        # of a distribution that is cut to one token, its logprob would be 0
        return "raw"
    # Certain of everything: so is a truncated distribution of one token, unless the whole one is as certain.
    alone = cold.ids[0] != free.ids[0] and cold.logprobs[0] > CERTAIN
    if alone or any(abs(a - b) > CLEAR for a, b in _alike(cold, free)):
        return "processed"
    return "unknown"


def _alike(one: PartialTurn, other: PartialTurn) -> list[tuple[float, float]]:
    """Pairs of logprobs of the tokens that both begin with."""
    pairs = []
    for ours, theirs, a, b in zip(one.ids, other.ids, one.logprobs, other.logprobs, strict=False):
        if ours != theirs:
            break
        pairs.append((a, b))
    return pairs


async def rng_scope(
    server: TokenServer, model: str, prompt_ids: tuple[int, ...]
) -> Literal["position", "sequence"]:
    """The scope of a seed's random numbers: whether a continued generation repeats the uninterrupted one."""
    whole = await sample(server, model, prompt_ids, HOT)
    begun, rest = tuple(whole.ids[: TOKENS // 2]), whole.ids[TOKENS // 2 :]
    half = HOT.model_copy(update={"max_tokens": TOKENS - len(begun)})
    continued = await sample(server, model, (*prompt_ids, *begun), half)
    random = sum(whole.logprobs[len(begun) :]) < RANDOM
    # a model that is certain repeats itself under any random numbers: only unlikely tokens prove something
    return "position" if random and continued.ids == rest else "sequence"


async def context_length(http: ModelHTTP, model: str) -> int | None:
    """Tokens of prompt and answer together, if the server's list of models has it."""
    try:
        async with http.errors():
            listed = await listed_models(http, f"{http.root}/v1")
    except ModelRejected:
        return None
    length = next((each.max_model_len for each in listed or () if each.id == model), None)
    return length if isinstance(length, int) else None


async def probe(
    http: ModelHTTP, inference: Inference, model: str, prompt_ids: tuple[int, ...], renderer: str
) -> ProbedServer:
    """Probe the server; raises ModelRejected, ModelUnavailable, and InvalidInput for `Inference.CHAT`."""
    if inference is Inference.CHAT:
        raise InvalidInput("chat mode has no tokens")
    server, seen = await find_server(http, inference, model, prompt_ids)
    confused = (*prompt_ids, *seen.ids)
    return ProbedServer(
        server=server,
        capabilities=ServerCapabilities(
            backend=server.inference,
            base_url=http.base_url,
            renderer=renderer,
            logprobs_mode=await logprobs_mode(server, model, confused),
            rng_scope=await rng_scope(server, model, confused),
            context=await context_length(http, model),
            weight_version=seen.versions[-1].version if seen.versions else None,
        ),
    )
