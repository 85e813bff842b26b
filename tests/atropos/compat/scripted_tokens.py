"""A token-exact model server that says what a script says, scores prompts, and judges in chat."""

import json
from collections.abc import AsyncIterator
from functools import cached_property
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from clotho.embedded.model.bundled import BUNDLED
from clotho.embedded.model.tokenizer import Tokenizer
from clotho.models.messages import ChatMessage
from clotho.testing.script import Policy, Question, ScriptedTurn
from tests.token_servers import sse

LOGPROB = -0.5
USER, ASSISTANT, END = "<|im_start|>user\n", "<|im_start|>assistant\n", "<|im_end|>"
PROBED = 300
"""The token that probes are answered with, since they want any."""


class ScriptedTokens:
    """vLLM's /v1/completions, and /v1/chat/completions, which answers with `verdict`."""

    def __init__(self, policy: Policy, verdict: str = "", scores: bool = True) -> None:
        self._policy = policy
        self._verdict = verdict
        self._scores = scores
        self.scored: list[int] = []
        """The number of tokens of each sequence that was scored."""
        self.app = Starlette(
            routes=[
                Route("/v1/completions", self._complete, methods=["POST"]),
                Route("/v1/chat/completions", self._judge, methods=["POST"]),
                Route("/health", lambda _: JSONResponse({})),
            ]
        )

    @cached_property
    def _tokenizer(self) -> Tokenizer:
        return Tokenizer(BUNDLED)

    async def _complete(self, request: Request) -> Response:
        body = json.loads(await request.body())
        if "prompt_logprobs" in body:
            return self._score(body["prompt"], body["prompt_logprobs"])
        key = request.headers.get("idempotency-key", "")
        ids = self._sampled(key, body)
        return StreamingResponse(_events(body["prompt"], ids), media_type="text/event-stream")

    def _score(self, prompt: list[int], count: int) -> Response:
        if not self._scores:
            return JSONResponse({"error": {"message": "prompt_logprobs are disabled"}}, 400)
        self.scored.append(len(prompt))
        rows: list[Any] = [None]
        for token in prompt[1:]:
            others = [each for each in range(count) if each != token]
            rows.append({str(each): {"logprob": LOGPROB - at} for at, each in enumerate((token, *others))})
        return JSONResponse({"choices": [{"prompt_logprobs": rows}]})

    def _sampled(self, key: str, body: dict[str, Any]) -> list[int]:
        if "/turn/" not in key:
            return [PROBED] * int(body["max_tokens"])
        prompt = b"".join(map(self._tokenizer.bytes_of, body["prompt"])).decode(errors="replace")
        first = prompt.partition(USER)[2].partition(END)[0]
        messages = [ChatMessage(role="user", content=first)]
        messages += [ChatMessage(role="assistant", content="")] * (prompt.count(ASSISTANT) - 1)
        turn = self._policy(Question(key=key, model="", messages=tuple(messages)))
        return self._tokenizer.encode(said(turn) + END)

    async def _judge(self, _: Request) -> Response:
        choice = {"index": 0, "message": {"role": "assistant", "content": self._verdict}}
        return JSONResponse(
            {
                "id": "1",
                "object": "chat.completion",
                "created": 0,
                "model": "scripted",
                "choices": [{**choice, "finish_reason": "stop"}],
            }
        )


def said(turn: ScriptedTurn) -> str:
    """A turn in the format of Hermes' models."""
    calls = [json.dumps({"name": call.name, "arguments": call.arguments}) for call in turn.calls]
    return (turn.content or "") + "".join(f"\n<tool_call>\n{call}\n</tool_call>" for call in calls)


async def _events(prompt: list[int], ids: list[int]) -> AsyncIterator[str]:
    logprobs = {"token_logprobs": [LOGPROB] * len(ids)}
    choice = {"token_ids": ids, "prompt_token_ids": prompt, "logprobs": logprobs, "finish_reason": "stop"}
    yield sse({"choices": [choice], "usage": {"completion_tokens": len(ids)}})
    yield "data: [DONE]\n\n"
