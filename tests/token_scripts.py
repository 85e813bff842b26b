"""A token-exact model server that says what a script says, under a template that forgets thoughts."""

import json
from collections.abc import Sequence
from pathlib import Path

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from tokenizers import Tokenizer

from clotho.testing.script import SIBLING
from tests.token_servers import sse
from tests.unit.rendering.families import Family, chatml

LAST_THOUGHT = r"""
    {%- if m.reasoning_content and loop.last %}
      {{- '<think>\n' + m.reasoning_content + '\n</think>\n\n' }}
    {%- endif %}
"""
FORGETFUL = Family("<|im_end|> <|im_start|> <think> </think>", chatml(LAST_THOUGHT), "hermes")
"""Its template shows no reasoning of turns that are over."""
CONTEXT = 16_384


def calling(command: str) -> str:
    call = {"name": "terminal", "arguments": {"command": command}}
    return f"<tool_call>\n{json.dumps(call)}\n</tool_call>"


def thinking(thought: str, text: str) -> str:
    return f"<think>\n{thought}\n</think>\n\n{text}"


class TokenScript:
    """Says turn n of a sibling's script behind vLLM's /inference/v1/generate."""

    def __init__(self, model: Path, said: Sequence[Sequence[str]]) -> None:
        self._tokenizer = Tokenizer.from_file(str(model / "tokenizer.json"))
        self._said = said
        self.app = Starlette(
            routes=[
                Route("/inference/v1/generate", self._generate, methods=["POST"]),
                Route("/v1/models", self._models),
            ]
        )

    async def _generate(self, request: Request) -> Response:
        key, body = request.headers["idempotency-key"], json.loads(await request.body())
        text, reason = "hm" * body["sampling_params"]["max_tokens"], "length"
        if found := SIBLING.search(key):
            text, reason = self._said[int(found[1])][int(key.rpartition("/")[2])] + "<|im_end|>", "stop"
        ids = self._tokenizer.encode(text).ids[: body["sampling_params"]["max_tokens"]]
        content = [{"token_id": token, "logprob": -0.01 * place} for place, token in enumerate(ids, 20)]
        choice = {
            "token_ids": ids,
            "logprobs": {"content": content},
            "finish_reason": reason,
            "weight_versions": [{"version": "7", "start": 0, "end": len(ids)}],
        }
        return Response(sse({"choices": [choice]}) + "data: [DONE]\n\n", media_type="text/event-stream")

    async def _models(self, _: Request) -> Response:
        return JSONResponse({"data": [{"id": "forgetful", "max_model_len": CONTEXT}]})
