"""How a run says that it wants tokens, and what contradicts that."""

import pytest

from clotho.cli.run_options import RunOptions
from clotho.config import secret
from clotho.embedded.model.bundled import BUNDLED, TINY
from clotho.errors import InvalidInput
from clotho.journal import Journal
from clotho.models.backend import Inference
from clotho.models.backends import Backends
from clotho.models.endpoint import Endpoint
from clotho.models.rendering.rendering import Rendering
from clotho.models.write_ahead import FlushPolicy
from clotho.runs.request import run_manifest


def test_options_of_tokens_say_nothing_in_chat_mode() -> None:
    assert RunOptions().rendering() is None
    with pytest.raises(InvalidInput, match=r"--tokenizer, --thinking: .*--inference tokens"):
        RunOptions(tokenizer="Qwen/Qwen3-8B", thinking=True).rendering()


def test_the_tokenizer_is_the_models_where_none_is_given() -> None:
    options = RunOptions(inference=Inference.TOKENS, tool_call_parser="hermes", thinking=True)
    rendering = options.rendering()
    manifest = run_manifest("file_tasks", "named", "org/model", rendering=rendering)
    assert manifest.rendering == Rendering(
        tokenizer="org/model", tool_call_parser="hermes", thinking_mode=True
    )


def test_token_mode_leaves_no_sampling_parameter_out() -> None:
    with pytest.raises(InvalidInput, match="standard-sampling"):
        run_manifest("file_tasks", "named", TINY, rendering=Rendering(), standard_sampling=True)


async def test_a_run_keeps_to_its_mode(journal: Journal) -> None:
    backends = Backends(journal, secret, 10.0, {TINY: BUNDLED}, FlushPolicy())
    chat = run_manifest("file_tasks", "chatting", TINY)
    with pytest.raises(InvalidInput, match="inference sglang"):
        backends.at(Endpoint(base_url="http://host/v1", inference=Inference.SGLANG), chat.model, None)
    exact = run_manifest("file_tasks", "exact", TINY, rendering=Rendering())
    with pytest.raises(InvalidInput, match="inference chat"):
        backends.at(Endpoint(base_url="http://host/v1"), exact.model, exact.rendering)
    endpoint = Endpoint(base_url="http://host/v1", inference=Inference.TOKENS)
    first, second = (backends.at(endpoint, exact.model, exact.rendering) for _ in range(2))
    assert first is second
    await backends.aclose()
