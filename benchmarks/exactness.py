"""Whether what a trainer was given is what the model server sampled, token by token and logprob by logprob."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import httpx

from benchmarks.table import Row
from clotho.embedded.model.bundled import BUNDLED
from clotho.embedded.model.kv_cache import KeyValueCache, PrefixStore
from clotho.embedded.model.policy import Policy
from clotho.embedded.model.qwen2 import Extension
from clotho.embedded.model.sampling import log_softmax
from clotho.errors import JournalCorrupt
from clotho.identifiers.keys import turn_key
from clotho.journal import Journal
from clotho.models.backend import SampledTokens, SampledTurn
from clotho.rollouts.turn import TurnEntry
from clotho.runs.rollouts import read_end

AT_ONCE = 16
SHARED_TOKENS = 8_192
MASKED = -100


@dataclass(frozen=True)
class DeliveredRow:
    """One row of a group as the trainer has it."""

    rollout: str
    tokens: list[int]
    masks: list[int]
    logprobs: list[float]

    @property
    def trained(self) -> list[int]:
        return [position for position, mask in enumerate(self.masks) if mask != MASKED]

    def holds(self, turn: SampledTokens) -> bool:
        """Whether all that was sampled stands behind all that it was sampled from, to be trained on."""
        start, end = len(turn.prompt_ids), len(turn.prompt_ids) + len(turn.ids)
        return (
            tuple(self.tokens[:start]) == turn.prompt_ids
            and tuple(self.tokens[start:end]) == tuple(self.masks[start:end]) == turn.ids
            and tuple(self.logprobs[start:end]) == turn.logprobs
        )


def delivered_rows(groups: Sequence[dict[str, Any]]) -> list[DeliveredRow]:
    return [
        DeliveredRow(rollout, tokens, masks, logprobs)
        for group in groups
        for rollout, tokens, masks, logprobs in zip(
            group["generation_params"]["rollouts"],
            group["tokens"],
            group["masks"],
            group["inference_logprobs"],
            strict=True,
        )
    ]


async def exactness(journal: Journal, url: str, groups: Sequence[dict[str, Any]]) -> list[Row]:
    """Every turn of the delivered `groups`, against the server at `url` and the embedded model itself."""
    rows = delivered_rows(groups)
    by_rollout: dict[str, list[DeliveredRow]] = {}
    for row in rows:
        by_rollout.setdefault(row.rollout, []).append(row)
    gate = asyncio.Semaphore(AT_ONCE)
    async with httpx.AsyncClient(base_url=url, timeout=60) as http:

        async def is_exact(rollout: str, turn: SampledTurn) -> bool:
            async with gate:
                said = await _asked_again(http, turn)
            tokens = turn.tokens
            return (
                tokens is not None
                and tokens.ids == said.ids
                and tokens.logprobs == said.logprobs
                and any(row.holds(tokens) for row in by_rollout[rollout])
            )

        turns = [(rollout, turn) for rollout in by_rollout for turn in await _turns(journal, rollout)]
        exact = sum(await asyncio.gather(*(is_exact(*each) for each in turns)))
    worst = await asyncio.to_thread(_largest_difference, rows)
    trained = sum(len(row.trained) for row in rows)
    return [
        Row(
            "turns bit-exact against the server",
            f"{exact} of {len(turns)}, {exact / len(turns):.0%}",
            "100 %",
        ),
        Row(f"largest difference of {trained:,} logprobs, computed anew", f"{worst:.1e}", "≤ 1e-4"),
    ]


@dataclass(frozen=True)
class _Answer:
    ids: tuple[int, ...]
    logprobs: tuple[float, ...]


async def _asked_again(http: httpx.AsyncClient, turn: SampledTurn) -> _Answer:
    """The server's answer to the same prompt ids, parameters and seed: the same to the last bit."""
    assert turn.tokens is not None
    sampling = turn.sampling.model_dump(mode="json", exclude={"extra_body"}) | {"logprobs": 0}
    body = {"token_ids": turn.tokens.prompt_ids, "sampling_params": sampling}
    answer = await http.post("/inference/v1/generate", json=body)
    choice = answer.raise_for_status().json()["choices"][0]
    said = choice["logprobs"]["content"]
    return _Answer(tuple(choice["token_ids"]), tuple(each["logprob"] for each in said))


async def _turns(journal: Journal, rollout: str) -> list[SampledTurn]:
    end = await read_end(journal, rollout)
    if end is None:
        raise JournalCorrupt(f"{rollout} was delivered and has no end")
    keys = [turn_key(rollout, number) for number in range(end.summary.turns)]
    entries = await journal.read_many(keys, TurnEntry)
    return [entry.sampled for entry in entries if entry is not None and entry.sampled is not None]


def _largest_difference(rows: Sequence[DeliveredRow]) -> float:
    """Over every token that is trained on, all rows advancing together."""
    model = Policy.load(BUNDLED).model
    prefixes = PrefixStore(SHARED_TOKENS)
    growing: list[tuple[DeliveredRow, KeyValueCache, list[int]]] = []
    worst = 0.0

    def compare(step: Sequence[tuple[DeliveredRow, KeyValueCache, int]]) -> float:
        extensions = [Extension(cache, row.tokens[len(cache.tokens) : at]) for row, cache, at in step]
        logprobs = log_softmax(model.extend(extensions))
        return max(
            abs(float(found[row.tokens[at]]) - row.logprobs[at])
            for (row, _, at), found in zip(step, logprobs, strict=True)
        )

    for row in rows:
        if not row.trained:
            continue
        first, *rest = row.trained
        cache = KeyValueCache(model.architecture)
        prefixes.fill(cache, row.tokens[:first])
        worst = max(worst, compare([(row, cache, first)]))
        prefixes.add(cache)
        growing.append((row, cache, rest))
    for number in range(max((len(rest) for _, _, rest in growing), default=0)):
        step = [(row, cache, rest[number]) for row, cache, rest in growing if number < len(rest)]
        worst = max(worst, compare(step))
    return worst
