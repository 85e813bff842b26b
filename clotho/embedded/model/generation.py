"""One generation in progress: its tokens, its text, and when it ends; and how likely given tokens are."""

from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from clotho.embedded.model.exact import Array
from clotho.embedded.model.kv_cache import KeyValueCache
from clotho.embedded.model.policy import Policy
from clotho.embedded.model.qwen2 import Extension
from clotho.embedded.model.sampling import SamplingParameters, choose, log_softmax
from clotho.embedded.model.tokenizer import TextStream


@dataclass(frozen=True)
class Likelihood:
    token: int
    logprob: float
    """Logprob at temperature 1."""
    rank: int
    """1 is the most likely token."""


@dataclass(frozen=True)
class Ending:
    reason: Literal["stop", "length"]
    matched: int | str | None = None
    """The stop token or string; None for the end of sequence and for length."""


@dataclass(frozen=True)
class Step:
    """One sampled token, and the text that it makes certain."""

    sampled: Likelihood
    alternatives: tuple[Likelihood, ...]
    text: str
    ending: Ending | None
    version: str
    """Version of the weights that the token was sampled from."""


class Generation:
    """Samples tokens for `prompt` from the logprobs it is given; `unseen` is what the model must compute next."""

    def __init__(self, policy: Policy, prompt: list[int], parameters: SamplingParameters) -> None:
        self.cache = KeyValueCache(policy.model.architecture)
        self._policy = policy
        self._parameters = parameters
        self._prompt_length = len(prompt)
        self._tokens = list(prompt)
        self._eos = frozenset() if parameters.ignore_eos else policy.model.architecture.eos_token_ids
        self._text = TextStream(
            policy.tokenizer,
            parameters.stop,
            include_stop=parameters.include_stop_text,
            keep_special=parameters.keep_special_tokens,
        )

    @property
    def unseen(self) -> list[int]:
        return self._tokens[len(self.cache.tokens) :]

    def continue_with(self, policy: Policy) -> None:
        """Sample from other weights from here on; keys and values of the tokens so far are to be computed anew."""
        self._policy = policy
        self.cache = KeyValueCache(policy.model.architecture)

    def advance(self, logprobs: Array) -> Step:
        """Sample the next token from its logprobs (vocabulary,)."""
        sampled = len(self._tokens) - self._prompt_length
        stops = self._eos | self._parameters.stop_token_ids
        forbidden = stops if sampled < self._parameters.min_tokens else ()
        token = choose(logprobs, self._parameters, len(self._tokens), forbidden)
        self._tokens.append(token)
        text, ending = self._ending(token, sampled + 1)
        return Step(
            sampled=_likelihood(logprobs, token),
            alternatives=tuple(
                Likelihood(int(each), float(logprobs[each]), rank)
                for rank, each in enumerate(_most_likely(logprobs, self._parameters.alternatives), 1)
            ),
            text=text,
            ending=ending,
            version=self._policy.version,
        )

    def _ending(self, token: int, sampled: int) -> tuple[str, Ending | None]:
        # as in vLLM, an end of sequence is reported without its token, even if that is among the stop tokens
        if token in self._eos:
            return self._text.finish(), Ending("stop")
        if token in self._parameters.stop_token_ids:
            return self._text.finish(), Ending("stop", token)
        text, matched = self._text.push(token)
        if matched is not None and sampled > self._parameters.min_tokens:
            return text, Ending("stop", matched)
        if sampled == self._parameters.max_tokens:
            return text + self._text.finish(), Ending("length")
        return text, None


def score_prompt(policy: Policy, prompt: list[int], count: int) -> list[tuple[Likelihood, ...]]:
    """Logprobs of each position's own token and the `count` most likely ones; none for the first.

    It blocks while it computes.
    """
    cache = KeyValueCache(policy.model.architecture)
    rows: list[tuple[Likelihood, ...]] = [()]
    # a token at a time: `extend` returns the logits after the last one alone
    for token, following in pairwise(prompt):
        logprobs = log_softmax(policy.model.extend([Extension(cache, [token])]))[0]
        named = dict.fromkeys([following, *_most_likely(logprobs, count)])
        rows.append(tuple(_likelihood(logprobs, each) for each in named))
    return rows


def _likelihood(logprobs: Array, token: int) -> Likelihood:
    return Likelihood(token, float(logprobs[token]), int((logprobs > logprobs[token]).sum()) + 1)


def _most_likely(logprobs: Array, count: int) -> list[int]:
    return (-logprobs).argsort(kind="stable")[:count].tolist() if count else []
