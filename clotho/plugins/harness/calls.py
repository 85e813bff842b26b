"""The calls that a rollout's harness has made: their names, the turns that answer them, and what they go on from.

A harness that starts anew makes its calls again, and is answered from the journal: equal calls have the same
name. A name is the digest of the normalized conversation with its tools, and an ordinal among equal ones of one
start: two equal calls may be meant. A call whose connection was cut before it had its answer is made again under
its own name.
"""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from clotho.rollouts.asked import AskedEntry
from clotho.rollouts.turn import TurnEntry

BEGINNING = ""


def chained(digests: Iterable[str]) -> list[str]:
    """A digest of each beginning of a conversation, from the digests of its messages."""
    chain = [BEGINNING]
    for digest in digests:
        chain.append(hashlib.sha256(f"{chain[-1]}{digest}".encode()).hexdigest()[:24])
    return chain[1:]


@dataclass
class Slot:
    """One of the equal calls of a start, and what became of its answer."""

    turn: int
    waits: bool = True
    """A connection waits for the answer."""
    delivered: bool = False
    extended: bool = False
    """A later call goes on from the answer: the harness has it."""
    repeated: bool = False


@dataclass
class Calls:
    """The calls of one rollout; slots are those of one start."""

    asked: dict[int, AskedEntry]
    turns: dict[int, TurnEntry]
    slots: dict[str, list[Slot]] = field(default_factory=dict)
    digests: dict[int, list[str]] = field(default_factory=dict)
    """Turn -> digests of its prompt's messages."""
    _by_call: dict[str, int] = field(default_factory=dict)
    _beginnings: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Digest of a conversation's beginning -> a turn that has it, and how many messages that are."""

    def __post_init__(self) -> None:
        self._by_call = {entry.call: turn for turn, entry in self.asked.items()}

    @property
    def next_turn(self) -> int:
        return max(self.asked, default=-1) + 1

    def turn_of(self, call: str) -> int | None:
        return self._by_call.get(call)

    def add(self, turn: int, entry: AskedEntry, digests: Sequence[str]) -> None:
        self.asked[turn] = without_messages(entry)
        self._by_call[entry.call] = turn
        self.digests[turn] = list(digests)

    def add_answer(self, turn: int, entry: TurnEntry, digest: str | None) -> None:
        """Keep the answer to a turn whose prompt is known, by the digest of its message; None: it has none."""
        self.turns[turn] = entry
        conversation = [*self.digests[turn], *([digest] if digest is not None else [])]
        for at, beginning in enumerate(chained(conversation), start=1):
            self._beginnings.setdefault(beginning, (turn, at))

    def longest_beginning(self, digests: Sequence[str]) -> tuple[int, int] | None:
        """The turn whose conversation, answer included, has the longest beginning in common; and its length."""
        found = (self._beginnings.get(each) for each in reversed(chained(digests)))
        return next(filter(None, found), None)

    def has_earlier(self, start: int) -> bool:
        """Whether earlier starts have made calls."""
        return any(entry.start < start for entry in self.asked.values())

    def unmatched(self, start: int) -> bool:
        """Whether earlier starts have made calls that this one hasn't."""
        own = {slot.turn for slots in self.slots.values() for slot in slots}
        return any(turn not in own for turn, entry in self.asked.items() if entry.start < start)

    def slot_again(self, digest: str) -> tuple[int, Slot] | None:
        """The ordinal and slot of an equal call that this one repeats; None for a new call."""
        slots = self.slots.setdefault(digest, [])
        for ordinal, slot in enumerate(slots):
            if not slot.waits and not slot.delivered:  # it was cut off
                return ordinal, slot
        if slots and (last := slots[-1]).delivered and not (last.extended or last.repeated):
            # the answer reached the socket, and perhaps not the harness: once
            last.repeated = True
            return len(slots) - 1, last
        return None

    def note_extended(self, turn: int) -> None:
        for slot in (slot for slots in self.slots.values() for slot in slots if slot.turn == turn):
            slot.extended = True


def without_messages(entry: AskedEntry) -> AskedEntry:
    """The entry for those who know its digests: messages of a long rollout are many megabytes."""
    return entry.model_copy(update={"messages": ()})
