"""The model server as authors use it: Atropos' own methods, manual rollouts, and scores of tokens."""

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import wraps
from typing import Any

from clotho.errors import ClothoError, InvalidInput, ModelRejected
from clotho.models.scoring import PromptScores, TokenScorer
from clotho.plugins.atropos.compat.manual_rollouts import ManualRollouts
from clotho.plugins.atropos.group_sender import retry_outages


class Teacher:
    """Scores tokens at a run's model servers in turn, through outages.

    A server that can't score ends the adapter, by `give_up`: no group is delivered without its scores.
    """

    def __init__(
        self, model: str, scorers: Sequence[TokenScorer], give_up: Callable[[ClothoError], None]
    ) -> None:
        self._model = model
        self._scorers = scorers
        self._give_up = give_up
        self._asked = 0

    async def score(self, token_ids: list[int], top_k: int) -> PromptScores:
        async def ask() -> PromptScores:
            self._asked += 1
            scorer = self._scorers[self._asked % len(self._scorers)]
            return await scorer.score(self._model, token_ids, top_k)

        try:
            if not self._scorers:
                raise InvalidInput("scoring tokens needs a run that has them: give --env.inference tokens")
            scores: PromptScores = await retry_outages(ask, "have tokens scored by the model server")
        except (InvalidInput, ModelRejected) as error:
            self._give_up(error)
            # the author's code mustn't catch it, and go on without scores: it waits here until it is cancelled
            await asyncio.get_running_loop().create_future()
            raise
        return scores


class ServerHandle:
    """Atropos' server manager, called on the event loop that its connections belong to: rewards run beside it."""

    def __init__(
        self,
        inner: Any,
        home: asyncio.AbstractEventLoop,
        manual_rollouts: ManualRollouts,
        teacher: Teacher,
        tokenizer: Any,
    ) -> None:
        self._inner = inner
        self._home = home
        self._teacher = teacher
        self._tokenizer = tokenizer
        self.manual_rollouts = manual_rollouts

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        return self._at_home(found) if inspect.iscoroutinefunction(found) else found

    async def get_logprobs(
        self,
        prompt: str | None = None,
        input_ids: Sequence[int] | None = None,
        top_k: int | None = None,
        top_logprobs: int | None = None,
        **_: Any,
    ) -> dict[str, Any]:
        """The model's log-probability of each token of `input_ids`, or of `prompt`.

        `prompt_tokens`, `prompt_topk_token_ids` and `prompt_topk_logprobs`, for each position the token itself and
        the `top_k` most likely ones; for the first, nothing. How to sample doesn't matter here.
        """
        if input_ids is None and prompt is None:
            raise InvalidInput("get_logprobs takes input_ids or a prompt")
        tokens = list(input_ids) if input_ids is not None else self._tokenizer.encode(prompt)
        scores = await self._at_home(self._teacher.score)(tokens, top_k or top_logprobs or 1)
        return {
            "prompt_tokens": tokens,
            "prompt_topk_token_ids": scores.token_ids,
            "prompt_topk_logprobs": scores.logprobs,
        }

    @asynccontextmanager
    async def managed_server(self, **_: Any) -> AsyncIterator["ServerHandle"]:
        """This handle: the tokens of every rollout are kept anyway."""
        yield self

    def _at_home(self, method: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(method)
        async def call(*arguments: Any, **options: Any) -> Any:
            work = method(*arguments, **options)
            if asyncio.get_running_loop() is self._home:
                return await work
            return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._home))

        return call
