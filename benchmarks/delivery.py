"""Costs of a turn on its way into the journal, and of a group on its way from there to the trainer's API."""

import asyncio
import random
import statistics
import time
from collections.abc import Awaitable
from pathlib import Path
from typing import Any

from atroposlib.envs.server_handling.server_manager import APIServerConfig

from benchmarks.in_memory import InMemory, InMemoryConfig
from benchmarks.table import Row
from benchmarks.trainers_end import TrainersEnd
from clotho.embedded.model.bundled import BUNDLED, TINY
from clotho.embedded.model.tokenizer import Tokenizer
from clotho.identifiers.ids import call_id, rollout_id
from clotho.identifiers.keys import call_key, prompt_key, turn_key
from clotho.journal import Journal
from clotho.journal.folder import FilesystemStore
from clotho.models.backend import Inference, SampledTokens, SampledTurn, Usage, VersionSpan
from clotho.models.messages import ChatMessage, FunctionCall, ToolCall
from clotho.models.partial_turn import PartialTurn
from clotho.models.rendering.resolve import open_renderer
from clotho.models.sampling import Sampling
from clotho.models.token_server import TokenChunk
from clotho.plugins.atropos.group_sender import GroupSender
from clotho.plugins.atropos.scored import branch_groups_of
from clotho.plugins.atropos.trainer_api import TrainerApi
from clotho.rollouts.call import CallEntry
from clotho.rollouts.group import GroupEntry
from clotho.rollouts.outcome import Ending, Outcome
from clotho.rollouts.rollout import Prompt, RolloutSummary
from clotho.rollouts.turn import TurnEntry
from clotho.runs.ledger import Ledger
from clotho.tools.registry import Registry
from clotho.tools.resolution import resolve
from clotho.training.siblings import read_siblings

TURN = 1_000
"""Tokens of the turn whose cost is taken."""
TURNS_TIMED = 50
ROWS, TURNS, SAMPLED, BETWEEN = 16, 8, 500, 500
"""A group of 16 rollouts, each of 8 turns of 500 tokens with 500 of prompt or tool result before each: 8,000."""
REPEATS = 5
VOCABULARY = 150_000
PROSE = (
    "The river rose in the night, and by noon the lower road was under water; nobody had seen it so high. "
)
CALL = '<tool_call>\n{"name": "terminal", "arguments": {"command": "cat notes.txt"}}\n</tool_call>'


async def turn_cost(folder: Path) -> list[Row]:
    """From a turn's last token to its entry on the disk: parsed for tool calls, encoded, written, flushed."""
    renderer = open_renderer(str(BUNDLED))
    tools = resolve(Registry.discover(), ("terminal",)).schemas
    tokenizer, draw = Tokenizer(BUNDLED), random.Random(0)
    call = tokenizer.encode(CALL)
    ids = [*(tokenizer.encode(PROSE) * TURN)[: TURN - len(call)], *call]
    prompt_ids = renderer.render((ChatMessage(role="user", content="What is in notes.txt?"),), tools)
    journal = Journal(FilesystemStore(folder))
    seconds = []
    for number in range(TURNS_TIMED):
        key = turn_key("turn-cost/g000000/r0", number)
        growing = PartialTurn(prompt_ids, renderer.vocabulary_size)
        growing.add(TokenChunk(ids=tuple(ids), logprobs=_logprobs(draw, TURN), finish_reason="stop"))
        clock = time.perf_counter()
        answer = await asyncio.to_thread(
            renderer.parse, growing.ids, tools, prompt_ids=prompt_ids, turn_key=key
        )
        message = answer.message
        assert message.tool_calls, "the call in the turn is found"
        tokens = growing.tokens(Inference.VLLM_GENERATE, "raw")
        await journal.write(key, TurnEntry(sampled=_sampled(message, tokens)))
        seconds.append(time.perf_counter() - clock)
    return [Row(f"a turn of {TURN:,} tokens parsed and journalled", f"{_ms(seconds):.1f} ms", "≤ 3 ms")]


async def delivery(api: TrainersEnd, folder: Path) -> list[Row]:
    """A large group from the journal to Atropos' own API, by Clotho and by BaseEnv, in turns."""
    entry = await _write_group(Journal(FilesystemStore(folder)))
    await api.begin(ROWS)
    env_id = await api.admit("delivery", ROWS)
    trainer_api = TrainerApi(api.url)
    config = InMemoryConfig(rollout_server_url=api.url, tokenizer_name=str(BUNDLED), use_wandb=False)
    base = InMemory(config, [APIServerConfig(model_name=TINY, base_url=api.url, api_key="none")])
    base.env_id = env_id

    async def current_env() -> int:
        await trainer_api.status(env_id)
        return env_id

    async def from_the_journal(group: str) -> list[dict[str, Any]]:
        siblings = await read_siblings(Journal(FilesystemStore(folder)), entry)
        return [
            branch_group.wire()
            for branch_group in await asyncio.to_thread(branch_groups_of, group, siblings, ROWS)
        ]

    async def timed(delivered: Awaitable[object]) -> float:
        clock = time.perf_counter()
        await delivered
        seconds = time.perf_counter() - clock
        (group,) = await api.batch()
        assert [len(row) for row in group["tokens"]] == [TURNS * (SAMPLED + BETWEEN)] * ROWS
        return seconds

    async def durably(group: str) -> None:
        sender = GroupSender(
            Ledger(Journal(FilesystemStore(folder)), "delivery"), trainer_api, current_env, lambda _: None
        )
        await sender.deliver(group, await from_the_journal(group))

    ours, theirs = [], []
    (branch_group,) = await from_the_journal("delivery/g000000")
    for number in range(REPEATS):
        theirs.append(await timed(base._send_scored_data_to_api(branch_group)))
        ours.append(await timed(durably(f"delivery/sent.{number}")))
    await trainer_api.aclose()
    shape = f"{ROWS} × {TURNS * (SAMPLED + BETWEEN):,} tokens"
    return [
        Row(f"a group of {shape} delivered by Atropos' BaseEnv", f"{_ms(theirs):.0f} ms"),
        Row("… by Clotho, from the journal to its acknowledgement", f"{_ms(ours):.0f} ms"),
        Row("… beyond Atropos' own", f"{_ms(ours) - _ms(theirs):+.0f} ms", "≤ 100 ms"),
    ]


async def _write_group(journal: Journal) -> GroupEntry:
    """Sealed rollouts, as finished ones are."""
    draw = random.Random(0)
    summaries = [
        await _write_rollout(journal, rollout_id("delivery/g000000", sibling), draw)
        for sibling in range(ROWS)
    ]
    return GroupEntry(item={}, toolsets=("terminal",), siblings=tuple(summaries))


async def _write_rollout(journal: Journal, rollout: str, draw: random.Random) -> RolloutSummary:
    question = ChatMessage(role="user", content=PROSE)
    await journal.write(prompt_key(rollout), Prompt(item={}, messages=(question,), seed=0))
    ids: tuple[int, ...] = ()
    for turn in range(TURNS):
        prompt_ids = ids + _ids(draw, BETWEEN)
        call = ToolCall(
            id=f"call_{turn}", function=FunctionCall(name="terminal", arguments='{"command": "ls"}')
        )
        message = ChatMessage(role="assistant", content=PROSE * 20, tool_calls=(call,))
        tokens = SampledTokens(
            prompt_ids=prompt_ids,
            ids=_ids(draw, SAMPLED),
            logprobs=_logprobs(draw, SAMPLED),
            logprobs_mode="raw",
            versions=(VersionSpan(version="1", start=0, end=SAMPLED),),
        )
        await journal.write(turn_key(rollout, turn), TurnEntry(sampled=_sampled(message, tokens)))
        made = CallEntry(
            tool="terminal",
            content=PROSE * 20,
            error=None,
            state={},
            lease=0,
            started=0.0,
            seconds=0.1,
            changes=True,
        )
        await journal.write(call_key(rollout, call_id(turn, 0)), made)
        ids = prompt_ids + tokens.ids
    await journal.seal(rollout)
    return RolloutSummary(
        rollout=rollout,
        ending=Ending(outcome=Outcome.COMPLETED),
        score=draw.random(),
        turns=TURNS,
        tool_calls=TURNS,
        tool_errors=0,
        prompt_tokens=0,
        sampled_tokens=TURNS * SAMPLED,
        active_seconds=1.0,
    )


def _sampled(message: ChatMessage, tokens: SampledTokens) -> SampledTurn:
    return SampledTurn(
        message=message,
        finish_reason="stop",
        usage=Usage(prompt_tokens=len(tokens.prompt_ids), completion_tokens=len(tokens.ids)),
        model=TINY,
        sampling=Sampling(max_tokens=TURN, seed=1),
        started=0.0,
        seconds=1.0,
        tokens=tokens,
    )


def _ids(draw: random.Random, count: int) -> tuple[int, ...]:
    return tuple(draw.randrange(VOCABULARY) for _ in range(count))


def _logprobs(draw: random.Random, count: int) -> tuple[float, ...]:
    return tuple(-draw.expovariate(1.0) for _ in range(count))


def _ms(seconds: list[float]) -> float:
    return statistics.median(seconds) * 1e3
