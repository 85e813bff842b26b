"""The numbered calls of a ToolContext, and the journal of those that a verification makes.

An author's verifier may be called several times: its process dies, or it raises. Its calls are answered again as
they were first, so that it takes the same way up to the call at which it was interrupted, whatever it has changed
in the workspace by then. A verifier that takes another way meets a CommandConflict: it has to begin anew.

Calls that overlap may come in another order the next time. They are told apart by name and arguments first, then by
order. So that all of them are known, the beginning of overlapping calls is journalled, too.
"""

import base64
import hashlib
import json
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol, TypeVar

from pydantic import JsonValue

from clotho.errors import CommandConflict, FileRefused, WorkspaceRefused
from clotho.frozen_model import FrozenModel
from clotho.journal import Journal

MOST_KEPT = 1 << 20
"""Bytes of an answer that are journalled; of a longer one its digest is, and it has to be had again."""

REFUSALS = {kind.__name__: kind for kind in (FileRefused, WorkspaceRefused)}
"""Errors that are answers: what the agent left, or the author asked for, makes them, and would again."""

Answer = TypeVar("Answer")


class CallAnswer(FrozenModel):
    """The answer of a call, as it is given to the author's code, and the tool state that it left."""

    text: str | None = None
    content: bytes | None = None
    refusal: str | None = None
    """The name of the error that the call raised, whose message is `text`."""
    state: dict[str, JsonValue] = {}


class BegunEntry(FrozenModel):
    """A call that began while others were under way, or that changes something."""

    call: str
    """Digest of its name and arguments."""
    overlap: int
    """Number of the first of the calls that it overlaps with, directly or by others in between."""


class AnsweredEntry(BegunEntry):
    """A call with its answer."""

    text: str | None
    content: str | None
    """Base64."""
    digest: str | None
    """Of an answer that is too long to be kept."""
    refusal: str | None
    state: dict[str, JsonValue]


Work = Callable[[int], Awaitable[CallAnswer]]
"""Makes a call, given its number."""


class NumberedCalls(Protocol):
    async def answer(self, name: str, arguments: Sequence[object], changes: bool, work: Work) -> CallAnswer:
        """Answer a call as an earlier attempt did, or by `work`. `changes`: a retry can't tell that it was made."""


class CountedCalls:
    """Numbers calls in the order in which they begin, and keeps nothing."""

    def __init__(self) -> None:
        self._next = 0

    async def answer(self, name: str, arguments: Sequence[object], changes: bool, work: Work) -> CallAnswer:
        number, self._next = self._next, self._next + 1
        return await work(number)


class JournalledCalls:
    """The calls of one epoch of a verification. `known` are those of earlier attempts, by number."""

    def __init__(self, journal: Journal, prefix: str, known: dict[int, BegunEntry]) -> None:
        self._journal = journal
        self._prefix = prefix
        self._known = known
        """The calls of earlier attempts that this one hasn't made yet."""
        self._next = max(known, default=-1) + 1
        self._under_way: dict[int, BegunEntry] = {}
        self._written: set[int] = set()
        """Numbers of the calls under way whose beginning is journalled."""
        self._conflict: CommandConflict | None = None

    @classmethod
    async def read(cls, journal: Journal, prefix: str) -> "JournalledCalls":
        """The calls that earlier attempts have journalled under `prefix`."""
        keys = await journal.keys(prefix)
        begun = [key for key in keys if key.endswith("-begun")]
        answered = [key for key in keys if key.endswith("-answered")]
        entries: list[tuple[str, BegunEntry | None]] = [
            *zip(begun, await journal.read_many(begun, BegunEntry), strict=True),
            *zip(answered, await journal.read_many(answered, AnsweredEntry), strict=True),
        ]
        numbers = {key: int(key.removeprefix(prefix).partition("-")[0]) for key, _ in entries}
        return cls(journal, prefix, {numbers[key]: entry for key, entry in entries if entry is not None})

    async def answer(self, name: str, arguments: Sequence[object], changes: bool, work: Work) -> CallAnswer:
        """Raises CommandConflict for a call that no earlier attempt made, while some of their calls are left."""
        # the author's code may have caught it: its later calls fail all the same
        if self._conflict is not None:
            raise self._conflict
        call = digest_of(name, arguments)
        found = self._take_known(name, call)
        if found is None:
            number, self._next = self._next, self._next + 1
            overlap = min((each.overlap for each in self._under_way.values()), default=number)
            entry = BegunEntry(call=call, overlap=overlap)
        else:
            number, entry = found
            if isinstance(entry, AnsweredEntry) and entry.digest is None:
                return _answer_or_raise(answer_of(entry))
            # its beginning is journalled; what its answer was isn't known, or was too long to keep
            self._written.add(number)
        self._under_way[number] = entry
        try:
            await self._keep_beginnings(changes)
            answer = await _answer_or_refusal(work(number))
            return _answer_or_raise(await self._keep_answer(number, entry, answer))
        except CommandConflict as conflict:
            self._conflict = self._conflict or conflict
            raise
        finally:
            del self._under_way[number]
            self._written.discard(number)

    def require_all_made(self) -> None:
        """Raises CommandConflict where an earlier attempt made calls that this one has left out."""
        if self._known:
            raise CommandConflict(f"{len(self._known)} calls of an earlier attempt were not made again")

    def _take_known(self, name: str, call: str) -> tuple[int, BegunEntry] | None:
        """Take the first known call that equals this one; None where no known call is left."""
        if not self._known:
            return None
        first = min(self._known)
        number = min((each for each, entry in self._known.items() if entry.call == call), default=None)
        # A call that had begun only after the end of another one can't come before it now.
        if number is None or self._known[number].overlap > first:
            self._conflict = CommandConflict(f"{name}: an earlier attempt made another call here")
            raise self._conflict
        return number, self._known.pop(number)

    async def _keep_beginnings(self, changes: bool) -> None:
        """Journal the beginnings of all calls under way, unless a lone call finds itself by its job's key."""
        if len(self._under_way) == 1 and not changes:
            return
        for number, entry in sorted(self._under_way.items()):
            if number not in self._written:
                # before the await: another call that begins meanwhile would write it again
                self._written.add(number)
                await self._journal.write(f"{self._key(number)}-begun", entry)

    async def _keep_answer(self, number: int, begun: BegunEntry, answer: CallAnswer) -> CallAnswer:
        """Journal an answer, or find that another attempt was first; returns the one that counts."""
        entry = entry_of(begun, answer)
        kept = await self._journal.write(f"{self._key(number)}-answered", entry)
        # another attempt wrote this number first, for another call or with another long answer
        if kept.call != begun.call or kept.digest != entry.digest:
            raise CommandConflict(f"call {number} was answered otherwise before")
        return answer if kept.digest is not None else answer_of(kept)

    def _key(self, number: int) -> str:
        return f"{self._prefix}{number:05}"


async def _answer_or_refusal(work: Awaitable[CallAnswer]) -> CallAnswer:
    try:
        return await work
    except (FileRefused, WorkspaceRefused) as refused:
        return CallAnswer(text=str(refused), refusal=type(refused).__name__)


def _answer_or_raise(answer: CallAnswer) -> CallAnswer:
    """Return the answer, or raise the error that it stands for."""
    if answer.refusal is not None:
        raise REFUSALS[answer.refusal](answer.text)
    return answer


def digest_of(name: str, arguments: Sequence[object]) -> str:
    """SHA-256 of a call's name and arguments, which are JSON values and bytes."""
    parts = [each if not isinstance(each, bytes) else hashlib.sha256(each).hexdigest() for each in arguments]
    return hashlib.sha256(json.dumps([name, *parts], sort_keys=True).encode()).hexdigest()


def entry_of(begun: BegunEntry, answer: CallAnswer) -> AnsweredEntry:
    content = None if answer.content is None else base64.b64encode(answer.content).decode()
    whole = f"{answer.text}\0{content}"
    long = len(whole) > MOST_KEPT
    return AnsweredEntry(
        call=begun.call,
        overlap=begun.overlap,
        text=None if long else answer.text,
        content=None if long else content,
        digest=hashlib.sha256(whole.encode(errors="surrogatepass")).hexdigest() if long else None,
        refusal=answer.refusal,
        state=answer.state,
    )


def answer_of(entry: AnsweredEntry) -> CallAnswer:
    content = None if entry.content is None else base64.b64decode(entry.content)
    return CallAnswer(text=entry.text, content=content, refusal=entry.refusal, state=entry.state)
