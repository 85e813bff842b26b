"""Names of a harness' calls: a later start that makes a call of the same name is answered from the journal."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from clotho.models.messages import ChatMessage
from clotho.plugins.harness.calls import Calls, Slot, without_messages
from clotho.plugins.harness.dialects.canonical import Asked
from clotho.plugins.harness.digest import Normalization
from clotho.plugins.harness.threads import beside
from clotho.rollouts.agent_program import Stage
from clotho.rollouts.asked import AskedEntry, AskedTools
from clotho.rollouts.lease import Fidelity
from clotho.rollouts.turn import TurnEntry


@dataclass
class Counts:
    """What the calls of one start were."""

    calls: int = 0
    matched: int = 0
    repeated: int = 0
    diverged_at: int | None = None


@dataclass(frozen=True)
class Named:
    """The name of a call, and the turn that answers it."""

    call: str
    slot: Slot


class Naming:
    """The names of one start's calls; `aside_without_tools`: calls without tools are beside the task."""

    def __init__(self, stage: Stage, normalization: Normalization, aside_without_tools: bool) -> None:
        self._stage = stage
        self._normalization = normalization
        self._aside_without_tools = aside_without_tools
        self._calls = Calls({}, {})
        self._known_digests: dict[bytes, str] = {}
        self.counts = Counts()

    @property
    def replayed(self) -> Fidelity | None:
        """Whether this start took the way of an earlier one, so far; None where there was none."""
        start = self._stage.lease
        if not self._calls.has_earlier(start):
            return None
        other = self.counts.diverged_at is not None or self._calls.unmatched(start)
        return Fidelity.DIVERGED if other else Fidelity.REPLAYED

    def worked_before(self, waits: bool, now: float) -> float | None:
        """Seconds that the program of this start had worked by the time `now`, as its last call tells.

        It has worked on since that was answered, unless it `waits` for an answer. None: it hasn't called yet.
        """
        own = {turn: entry for turn, entry in self._calls.asked.items() if entry.start == self._stage.lease}
        if not own:
            return None
        last = max(own, key=lambda turn: own[turn].worked)
        answer = self._calls.turns.get(last)
        if waits or answer is None or answer.sampled is None:
            return own[last].worked
        return own[last].worked + max(0.0, now - answer.sampled.started - answer.sampled.seconds)

    def recall(self, asked: dict[int, AskedEntry], turns: dict[int, TurnEntry]) -> None:
        """Take in the calls and turns that the journal has. It may take seconds."""
        self._calls = Calls(asked, {})
        # in this order: a prompt may extend the conversation of an earlier turn
        for turn in sorted(asked):
            self._calls.digests[turn] = self._digests_of(turn)
            if turn in turns:
                self.add_answer(turn, turns[turn])
        # last: the digests above are of these messages
        self._calls.asked = {turn: without_messages(entry) for turn, entry in asked.items()}

    def _digests_of(self, turn: int) -> list[str]:
        """The digests of the messages of a turn's prompt."""
        entry = self._calls.asked[turn]
        before: list[str] = []
        if entry.extends is not None:
            sampled = self._calls.turns[entry.extends].sampled
            answer = [self._digest(sampled.message)] if sampled is not None else []
            before = [*self._calls.digests[entry.extends], *answer][: entry.kept]
        return [*before, *map(self._digest, entry.messages)]

    def has_answer(self, turn: int) -> bool:
        return turn in self._calls.turns

    def add_answer(self, turn: int, entry: TurnEntry) -> None:
        """Note the answer to a call: later ones may go on from it."""
        sampled = entry.sampled
        self._calls.add_answer(turn, entry, self._digest(sampled.message) if sampled is not None else None)

    async def name(self, asked: Asked, size: int, worked: float, may_be_new: bool) -> Named | None:
        """Name a call of `size` bytes: as the call that it repeats, or as an equal one of an earlier start.

        A new call is kept as a further turn, with the seconds that its program has worked; None if it may not be
        new.
        """
        digests, of_tools = await beside(size, self._digests, asked)
        digest = hashlib.sha256("\n".join([*digests, of_tools]).encode()).hexdigest()[:24]
        if (again := self._calls.slot_again(digest)) is not None:
            ordinal, slot = again
            slot.waits, slot.delivered = True, False
            self.counts.repeated += 1
            return Named(f"{digest}-{ordinal}", slot)
        call = f"{digest}-{len(self._calls.slots[digest])}"
        beginning = self._calls.longest_beginning(digests)
        turn = self._calls.turn_of(call)
        if turn is None:
            if not may_be_new:
                return None
            turn = await self._keep(call, asked, of_tools, digests, beginning, worked)
        elif self._calls.asked[turn].start < self._stage.lease:
            self.counts.matched += 1
        if beginning is not None:
            self._calls.note_extended(beginning[0])
        self.counts.calls += 1
        slot = Slot(turn)
        self._calls.slots[digest].append(slot)
        return Named(call, slot)

    async def _keep(
        self,
        call: str,
        asked: Asked,
        of_tools: str,
        digests: Sequence[str],
        beginning: tuple[int, int] | None,
        worked: float,
    ) -> int:
        """Keep a new call in the journal; returns its turn."""
        extends, kept = beginning if beginning is not None else (None, 0)
        entry = AskedEntry(
            call=call,
            start=self._stage.lease,
            extends=extends,
            kept=kept,
            # the model gets the journal's messages for the rest, on whose tokens it was sampled: this start's
            # own may differ in volatile texts
            messages=asked.messages[kept:],
            tools=of_tools,
            aside=self._aside_without_tools and not asked.tools,
            requested=asked.requested,
            worked=worked,
        )
        tools = AskedTools(schemas=asked.tools, freeform=tuple(sorted(asked.custom_tools)))
        turn = await self._stage.ask(self._calls.next_turn, entry, tools)
        self._calls.add(turn, entry, digests)
        if self.counts.diverged_at is None and self._calls.unmatched(self._stage.lease):
            self.counts.diverged_at = self.counts.calls
        return turn

    def _digests(self, asked: Asked) -> tuple[list[str], str]:
        """The digests of a request's messages, and the digest of its tools."""
        of_tools = self._normalization.digest_of_tools(asked.tools, asked.custom_tools)
        return [self._digest(message) for message in asked.messages], of_tools

    def _digest(self, message: ChatMessage) -> str:
        """The digest of the normalized message: each call repeats those before, and their patterns are slow."""
        as_sent = hashlib.sha256(message.model_dump_json().encode()).digest()
        if (known := self._known_digests.get(as_sent)) is None:
            known = self._known_digests[as_sent] = self._normalization.digest(message)
        return known
