"""A rollout as its page shows it: some turns at a time, and what of it can be read where an entry is damaged."""

import re
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import TypeVar

from pydantic import BaseModel

from clotho.errors import InvalidInput, JournalCorrupt
from clotho.identifiers.ids import call_id, group_of
from clotho.identifiers.keys import (
    asked_key,
    attempt_prefix,
    call_key,
    lease_key,
    prompt_key,
    reward_key,
    sealed_key,
    turn_key,
    turn_prefix,
)
from clotho.journal import Journal
from clotho.models.messages import ChatMessage, ToolCall
from clotho.rollouts.agent_program import ProgramEntry
from clotho.rollouts.asked import (
    AskedEntry,
    asked_text,
    is_first_of_start,
    messages_added,
    program_results,
)
from clotho.rollouts.call import CallEntry
from clotho.rollouts.group import AttemptEntry, RepairEntry, SiblingFailure
from clotho.rollouts.lease import LeaseEntry
from clotho.rollouts.rollout import Prompt, RolloutSummary
from clotho.rollouts.turn import TurnEntry
from clotho.rollouts.verification import RewardEntry
from clotho.runs.disturbances import disturbances_of, repairs_of
from clotho.runs.repairs import group_repairs
from clotho.runs.rollouts import program_end_text, program_ends, read_end, sandbox_losses

TURNS = 50
"""Turns on a page."""

Entry = TypeVar("Entry", bound=BaseModel)
Result = TypeVar("Result")


@dataclass(frozen=True)
class CallView:
    """A tool call: as the model made it, and its result once there is one."""

    key: str
    call: ToolCall
    entry: CallEntry | None
    loss: LeaseEntry | None = None
    """The sandbox that replaced a lost one, where this is the first call in it."""


@dataclass(frozen=True)
class TurnView:
    number: int
    key: str
    entry: TurnEntry | None
    """None where the entry can't be read."""
    calls: Sequence[CallView]
    repairs: Sequence[RepairEntry]
    """Failures after which the rollout went on with this turn."""
    asked: AskedEntry | None = None
    """What the agent's program asked; it made the calls by itself."""
    note: str = ""
    """How that goes on from earlier turns, where it isn't from the one before."""
    anew: bool = False
    """Whether the program was started anew before."""
    added: Sequence[ChatMessage] = ()
    """Messages that it sent beside results of its calls."""


@dataclass
class RolloutView:
    """What the journal has of a rollout."""

    rollout: str
    prompt: Prompt | None = None
    turns: Sequence[TurnView] = ()
    first: int = 0
    count: int = 0
    """Turns of the whole rollout."""
    reward: RewardEntry | None = None
    end: RolloutSummary | None = None
    losses: Sequence[str] = ()
    repairs: Sequence[RepairEntry] = ()
    failures: Sequence[SiblingFailure] = ()
    """With which attempts at its group ended."""
    disturbances: Sequence[str] = ()
    ends: Mapping[int, ProgramEntry] = field(default_factory=dict)
    """Number of the sandbox -> how the agent's program ended there."""
    problems: list[str] = field(default_factory=list)
    """Entries that can't be read, and why."""

    @property
    def has_tokens(self) -> bool:
        """Whether the tokens of one of these turns are known."""
        sampled = (turn.entry.sampled for turn in self.turns if turn.entry is not None)
        return any(each is not None and each.tokens is not None for each in sampled)

    @property
    def program(self) -> str | None:
        """The agent, where it is a program with a loop of its own."""
        return self.prompt.program if self.prompt is not None else None

    def end_text(self, lease: int) -> Sequence[str]:
        """How the agent's program ended in a sandbox, in sentences."""
        return program_end_text(self.program or "", lease, self.ends[lease])

    @property
    def replaced_by(self) -> str | None:
        """The rollout that took its place after it had failed."""
        after = (each.continued_as for each in self.repairs if each.failure.workflow == self.rollout)
        return next((rollout for rollout in after if rollout != self.rollout), None)

    @property
    def lost_before_verification(self) -> bool:
        """Whether the sandbox of its last call was lost, so that it was verified in another one."""
        lease = self.reward.lease if self.reward is not None else None
        # only the last page has the last call
        if self.next is not None or lease is None or lease.fidelity is None:
            return False
        calls = (call.entry for turn in self.turns for call in turn.calls if call.entry is not None)
        leases = [call.lease for call in calls if call.lease is not None]
        return bool(leases) and lease.number > leases[-1]

    @property
    def next(self) -> int | None:
        """The number of the first turn of the next page."""
        after = self.first + len(self.turns)
        return after if after < self.count else None


async def read_rollout(journal: Journal, rollout: str, first: int = 0, most: int = TURNS) -> RolloutView:
    """Read `most` turns from number `first`, and all that isn't a turn.

    Raises InvalidInput for an unknown rollout.
    """
    view = RolloutView(rollout, first=first)
    reader = _Reader(journal, view.problems)
    view.prompt = await reader.one(prompt_key(rollout), Prompt)
    ended = await reader.checked(read_end(journal, rollout))
    view.end = ended.summary if ended is not None else None
    if view.end is not None:
        view.count = view.end.turns
    else:
        numbers = [int(key.rpartition("/")[2]) for key in await journal.keys(turn_prefix(rollout))]
        view.count = max(numbers, default=-1) + 1
    if view.prompt is None and not view.count and not view.problems:
        raise InvalidInput(f"there is no rollout {rollout!r} in {journal.store_identity}")
    view.reward = await reader.one(reward_key(rollout), RewardEntry)
    all_repairs = await reader.checked(group_repairs(journal, group_of(rollout))) or ()
    view.repairs = repairs_of(rollout, all_repairs)
    failures = await reader.checked(attempt_failures(journal, group_of(rollout))) or ()
    view.failures = [each for each in failures if each.workflow == rollout]
    losses = view.end.losses if view.end else await reader.checked(sandbox_losses(journal, rollout))
    view.losses = tuple(map(str, losses or ()))
    if view.end is not None:
        view.disturbances = tuple(map(str, disturbances_of(view.end, all_repairs)))
    numbers = list(range(first, min(first + most, view.count)))
    asked: dict[int, AskedEntry] = {}
    if view.program is not None:
        view.ends = await reader.checked(program_ends(journal, rollout, len(view.losses))) or {}
        # All of them: a later page may have the results of these calls, and an earlier one what they go on from.
        every = range(view.count)
        found = await reader.many([asked_key(rollout, number) for number in every], AskedEntry)
        asked = {number: entry for number, entry in zip(every, found, strict=True) if entry is not None}
    view.turns = await reader.turns(rollout, numbers, view.repairs, asked)
    return view


class _Reader:
    """Reads entries, and notes those that are damaged in place of raising."""

    def __init__(self, journal: Journal, problems: list[str]) -> None:
        self._journal = journal
        self._problems = problems

    async def checked(self, reading: Awaitable[Result]) -> Result | None:
        try:
            return await reading
        except JournalCorrupt as error:
            if str(error) not in self._problems:
                self._problems.append(str(error))
            return None

    async def one(self, key: str, kind: type[Entry]) -> Entry | None:
        return await self.checked(self._journal.read(key, kind))

    async def many(self, keys: Sequence[str], kind: type[Entry]) -> list[Entry | None]:
        try:
            return await self._journal.read_many(keys, kind)
        except JournalCorrupt:
            # read_many fails as a whole: alone, each entry says whether it is the damaged one
            return [await self.one(key, kind) for key in keys]

    async def turns(
        self,
        rollout: str,
        numbers: Sequence[int],
        repairs: Sequence[RepairEntry],
        asked: Mapping[int, AskedEntry],
    ) -> list[TurnView]:
        entries = await self.many([turn_key(rollout, number) for number in numbers], TurnEntry)
        continued = [each for each in repairs if each.continued_as == each.failure.workflow == rollout]
        repaired = {
            number: [each for each in continued if each.turns == number] for number in numbers if continued
        }
        if asked:
            return _program_turns(rollout, numbers, entries, repaired, asked)
        places = [
            (number, call_id(number, index), call)
            for number, entry in zip(numbers, entries, strict=True)
            for index, call in enumerate(entry.tool_calls if entry is not None else ())
        ]
        results = await self.many([call_key(rollout, place) for _, place, _ in places], CallEntry)
        calls: dict[int, list[CallView]] = {number: [] for number in numbers}
        lease: int | None = None
        for (number, place, call), result in zip(places, results, strict=True):
            loss = None
            if result is not None and result.lease is not None:
                # on later pages the lease before the first call isn't known, so neither is a loss
                if result.lease and lease != result.lease and (lease is not None or not numbers[0]):
                    loss = await self.one(lease_key(rollout, result.lease), LeaseEntry)
                lease = result.lease
            calls[number].append(CallView(call_key(rollout, place), call, result, loss))
        return [
            TurnView(number, turn_key(rollout, number), entry, calls[number], repaired.get(number, ()))
            for number, entry in zip(numbers, entries, strict=True)
        ]


def _program_turns(
    rollout: str,
    numbers: Sequence[int],
    entries: Sequence[TurnEntry | None],
    repaired: Mapping[int, Sequence[RepairEntry]],
    asked: Mapping[int, AskedEntry],
) -> list[TurnView]:
    """Turns that an agent's program asked for; the results of its calls are in what it asked next."""
    turns = {number: entry for number, entry in zip(numbers, entries, strict=True) if entry is not None}
    results, views = program_results(asked, turns), list[TurnView]()
    for number, entry in zip(numbers, entries, strict=True):
        sent = results.get(number)
        key = asked_key(rollout, sent.sent_at if sent is not None else number)
        made = sent.entries if sent is not None else ()
        calls = entry.tool_calls if entry is not None else ()
        views.append(
            TurnView(
                number,
                turn_key(rollout, number),
                entry,
                [
                    CallView(key if at < len(made) else turn_key(rollout, number), call, result)
                    for at, (call, result) in enumerate(zip_longest(calls, made))
                ],
                repaired.get(number, ()),
                asked.get(number),
                asked_text(number, asked) if number in asked else "",
                number in asked and is_first_of_start(number, asked),
                messages_added(asked[number], results) if number in asked else (),
            )
        )
    return views


async def attempt_failures(journal: Journal, group: str) -> list[SiblingFailure]:
    """The failures that ended attempts at a group, sorted by attempt and then by rollout."""
    attempts = await journal.read_many(await journal.keys(attempt_prefix(group)), AttemptEntry)
    found = [attempt.failures for attempt in attempts if attempt is not None]
    return [each for failures in found for each in sorted(failures, key=lambda failure: failure.workflow)]


@dataclass(frozen=True)
class OpenRollout:
    """A rollout of a group that isn't scored yet."""

    rollout: str
    turns: int
    calls: int
    ended: bool


async def open_rollouts(journal: Journal, group: str) -> list[OpenRollout]:
    """The rollouts of a group that have begun, by a listing of keys alone: no entry is read."""
    keys = await journal.keys(f"{group}/")
    found = sorted({"/".join(key.split("/")[:3]) for key in keys if _is_of_rollout(key)}, key=_in_order)
    return [
        OpenRollout(
            rollout,
            turns=sum(key.startswith(f"{rollout}/turn/") for key in keys),
            calls=sum(key.startswith(f"{rollout}/call/") for key in keys),
            ended=sealed_key(rollout) in keys or f"{rollout}/end" in keys,
        )
        for rollout in found
    ]


def _in_order(rollout: str) -> tuple[int, str]:
    """r10 comes after r9 and its replacements."""
    number = re.match(r"\d+", rollout.rpartition("/r")[2])
    return int(number[0]) if number is not None else 0, rollout


def _is_of_rollout(key: str) -> bool:
    name = key.split("/")[2]
    return key.count("/") > 2 and name.startswith("r") and name[1:2].isdigit()
