"""What a server is, is found out by sampling from it."""

from collections.abc import Callable, Iterator

import pytest

from clotho.embedded.model import EmbeddedModelServer
from clotho.embedded.model.bundled import TINY
from clotho.models.backend import Inference
from clotho.models.token_exact import TokenExact
from clotho.testing.scripted_model import serving
from tests.token_servers import Json, SequenceSampler

Open = Callable[..., TokenExact]
LATE = 588
"""The seed of a first random number beyond all that is likely."""


@pytest.mark.parametrize("inference", [Inference.TOKENS, Inference.VLLM_COMPLETIONS])
async def test_the_embedded_server(
    embedded_model: EmbeddedModelServer, open_backend: Open, inference: Inference
) -> None:
    found = await open_backend(f"{embedded_model.url}/v1", inference).check(TINY)
    wanted = Inference.VLLM_GENERATE if inference is Inference.TOKENS else inference
    assert (found.backend, found.logprobs_mode, found.rng_scope, found.context) == (
        wanted,
        "raw",
        "position",
        1024,
    )
    assert found.weight_version and "hermes" in found.renderer


@pytest.mark.parametrize(
    ("processed", "stickiness", "mode"),
    [(False, 6.0, "raw"), (True, 6.0, "processed"), (False, 1e9, "unknown"), (True, 1e9, "unknown")],
)
async def test_logprobs_of_the_model_and_of_what_was_sampled_from(
    open_backend: Open, processed: bool, stickiness: float, mode: str
) -> None:
    """At a temperature other than 1 a trainer needs to know; of a model that is certain nobody can tell."""
    sampler = SequenceSampler(length=1e12, processed=processed, sticky=stickiness)
    async with serving(sampler) as url:
        found = await open_backend(url).check(TINY)
    assert (found.logprobs_mode, found.rng_scope) == (mode, "sequence")
    assert (found.context, found.weight_version) == (None, None)


class Unlikely(SequenceSampler):
    """Begins with what it samples once in twenty times."""

    def turn(self, last: int, asked: Json) -> Iterator[tuple[int, float, str | None]]:
        return super().turn(last, asked | {"seed": LATE})


async def test_a_token_sampled_by_chance_proves_nothing(open_backend: Open) -> None:
    """Of a model that is nearly certain: another token than the likeliest is no sign of truncated logprobs."""
    async with serving(Unlikely(length=1e12, sticky=31 * 19)) as url:
        found = await open_backend(url).check(TINY)
    assert found.logprobs_mode == "unknown"
