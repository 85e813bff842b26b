"""The tokens of a turn while it is sampled, over one or more requests, and their journal entries."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from clotho.errors import InexactTokens, ModelUnavailable
from clotho.escaping import for_line
from clotho.frozen_model import FrozenModel
from clotho.models.answers import UNFINISHED, VERSION_CHARACTERS, printable_name
from clotho.models.backend import Inference, LogprobsMode, SampledTokens, VersionSpan, at_step
from clotho.models.token_server import TokenChunk


class StreamEntry(FrozenModel):
    """Tokens of an unfinished turn, from which it is continued."""

    offset: int
    """Position of the first of `ids` in the turn."""
    ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    prompt_ids: tuple[int, ...] = ()
    """Set in a turn's first entry."""
    resumed_at: tuple[int, ...] = ()
    """Positions at which the turn had been resumed until then."""
    versions: tuple[VersionSpan, ...] = ()
    """Weight versions of the turn's tokens until then, as far as reported."""
    known_version: str | None = None
    """The server's last known weight version before these tokens were requested."""
    trainer_step: int | None = None
    """The trainer's step known when these tokens were requested."""
    finish_reason: str | None = None
    stop_reason: int | str | None = None
    started: float
    seconds: float
    """Active sampling time until then."""


@dataclass
class PartialTurn:
    """The tokens sampled after `prompt_ids` so far; ids are below `vocabulary`."""

    prompt_ids: tuple[int, ...]
    vocabulary: int
    budget: int | None = None
    """Most tokens of the turn; None: unlimited."""
    started: float = field(default_factory=time.time)
    ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    versions: list[VersionSpan] = field(default_factory=list)
    resumed_at: list[int] = field(default_factory=list)
    known_version: str | None = None
    trainer_step: int | None = None
    finish_reason: str | None = None
    stop_reason: int | str | None = None
    cached_prompt_tokens: int = 0
    system_fingerprint: str | None = None
    _request_start: int = 0
    _seconds_before: float = 0.0
    _clock: float = field(default_factory=time.perf_counter)
    _unversioned: list[tuple[int, str | None]] = field(default_factory=list)
    """Ends of interrupted requests, and the weight version known before each."""
    _steps_before: list[VersionSpan] = field(default_factory=list)
    """Weight versions of their tokens, by the trainer's step."""

    @classmethod
    def resumed(cls, entries: Sequence[StreamEntry], vocabulary: int) -> "PartialTurn":
        """The turn in its write-ahead, of at least one entry."""
        first, last = entries[0], entries[-1]
        turn = cls(first.prompt_ids, vocabulary, started=first.started)
        for entry in entries:
            turn.ids += entry.ids
            turn.logprobs += entry.logprobs
            turn._unversioned.append((len(turn.ids), entry.known_version))
            turn._steps_before += _stepped(entry.trainer_step, entry.offset, len(turn.ids))
        turn.resumed_at, turn.versions = list(last.resumed_at), list(last.versions)
        turn.finish_reason, turn.stop_reason = last.finish_reason, last.stop_reason
        turn._seconds_before = last.seconds
        return turn

    @property
    def seconds(self) -> float:
        return self._seconds_before + time.perf_counter() - self._clock

    def begin_request(self, known_version: str | None, trainer_step: int | None = None) -> None:
        """Note that another request continues from here."""
        self._request_start = len(self.ids)
        self.known_version, self.trainer_step = known_version, trainer_step
        if self.ids:
            self.resumed_at.append(len(self.ids))

    def add(self, chunk: TokenChunk) -> None:
        """Append a chunk; raises InexactTokens and ModelUnavailable for one that can't be part of a turn."""
        # all checks come before the first change: a chunk is in the turn whole, or not at all
        if outside := [token for token in chunk.ids if not 0 <= token < self.vocabulary]:
            raise InexactTokens(
                f"the model server sampled {outside[0]}, outside the vocabulary of {self.vocabulary}"
            )
        if chunk.ids and self.finish_reason is not None:
            raise InexactTokens(
                f"the model server samples on after its answer has ended ({for_line(self.finish_reason)})"
            )
        sampled = len(self.ids) - self._request_start + len(chunk.ids)
        if chunk.sampled is not None and chunk.sampled != sampled:
            raise InexactTokens(
                f"the model server returns {sampled} token ids of {chunk.sampled} that it sampled"
            )
        if self.budget is not None and len(self.ids) + len(chunk.ids) > self.budget:
            raise InexactTokens(
                f"the model server samples more than the {self.budget} tokens it was asked for"
            )
        self._check_versions(chunk, sampled)
        self.ids += chunk.ids
        self.logprobs += chunk.logprobs
        # raised only now: the tokens before the break are sampled and paid for, and are written ahead
        if chunk.finish_reason in UNFINISHED:
            raise ModelUnavailable(f"the model server's answer is unfinished: {chunk.finish_reason}")
        self.finish_reason = chunk.finish_reason or self.finish_reason
        self.stop_reason = chunk.stop_reason if chunk.stop_reason is not None else self.stop_reason
        self.system_fingerprint = printable_name(chunk.system_fingerprint) or self.system_fingerprint
        self.cached_prompt_tokens = max(self.cached_prompt_tokens, chunk.cached_prompt_tokens)
        for span in chunk.versions:
            self._note(span.version, self._request_start + span.start, self._request_start + span.end)

    def _check_versions(self, chunk: TokenChunk, sampled: int) -> None:
        """Check that spans are in order, and of tokens that were sampled."""
        end = 0
        for span in chunk.versions:
            if not end <= span.start <= span.end <= sampled:
                raise InexactTokens(
                    f"the model server names weight versions of tokens [{span.start}, {span.end}) of {sampled}"
                )
            if len(span.version) > VERSION_CHARACTERS or not span.version.isprintable():
                raise InexactTokens("the model server's name of a weight version is no name")
            end = span.end

    def _note(self, version: str, start: int, end: int) -> None:
        """Record a version; later spans override earlier ones, and neighbours of one version are joined."""
        if start == end:
            return
        kept = self.versions
        # a server may report a span again that has grown since
        while kept and kept[-1].start >= start:
            kept.pop()
        if kept and kept[-1].end >= start:
            cut = kept.pop()
            if cut.version == version:
                start = cut.start
            else:
                kept.append(cut.model_copy(update={"end": start}))
        kept.append(VersionSpan(version=version, start=start, end=end))

    def end_at(self, length: int, stop: str) -> None:
        """Cut the turn after `length` tokens, which meet `stop`."""
        for tokens in (self.ids, self.logprobs):
            del tokens[length:]
        self.resumed_at = [at for at in self.resumed_at if at < length]
        self.versions, self._steps_before = (
            [span.model_copy(update={"end": min(span.end, length)}) for span in spans if span.start < length]
            for spans in (self.versions, self._steps_before)
        )
        self.finish_reason, self.stop_reason = "stop", stop

    def entry(self, offset: int) -> StreamEntry:
        """The write-ahead entry of the tokens from `offset` on."""
        return StreamEntry(
            offset=offset,
            ids=tuple(self.ids[offset:]),
            logprobs=tuple(self.logprobs[offset:]),
            prompt_ids=self.prompt_ids if offset == 0 else (),
            resumed_at=tuple(self.resumed_at),
            versions=tuple(self.versions),
            known_version=self.known_version,
            trainer_step=self.trainer_step,
            finish_reason=self.finish_reason,
            stop_reason=self.stop_reason,
            started=self.started,
            seconds=self.seconds,
        )

    def tokens(self, backend: Inference, mode: LogprobsMode) -> SampledTokens:
        return SampledTokens(
            prompt_ids=self.prompt_ids,
            ids=tuple(self.ids),
            logprobs=tuple(self.logprobs),
            logprobs_mode=mode,
            versions=self._known_versions(),
            resumed_at=tuple(self.resumed_at),
            backend=backend,
        )

    def _known_versions(self) -> tuple[VersionSpan, ...]:
        """The weight versions of all tokens: the server's, else the trainer's step known at the request."""
        stepped = [*self._steps_before, *_stepped(self.trainer_step, self._request_start, len(self.ids))]
        named = self._proved_versions()
        known = [*named, *(gap for span in stepped for gap in _gaps(span, named))]
        joined: list[VersionSpan] = []
        for span in sorted(known, key=lambda span: span.start):
            if joined and (joined[-1].version, joined[-1].end) == (span.version, span.start):
                span = joined.pop().model_copy(update={"end": span.end})
            joined.append(span)
        return tuple(joined)

    def _proved_versions(self) -> tuple[VersionSpan, ...]:
        """The server's versions; an interrupted request has that which was reported both before and after it."""
        missing = self.versions[0].start if self.versions else 0
        before = [known for end, known in self._unversioned if end <= missing]
        # servers may name versions at a stream's end only: between two sightings of one there was no other
        if not missing or not before or set(before) != {self.versions[0].version}:
            return tuple(self.versions)
        return (self.versions[0].model_copy(update={"start": 0}), *self.versions[1:])


def _stepped(step: int | None, start: int, end: int) -> list[VersionSpan]:
    return (
        [VersionSpan(version=at_step(step), start=start, end=end)] if step is not None and start < end else []
    )


def _gaps(span: VersionSpan, named: Sequence[VersionSpan]) -> Iterator[VersionSpan]:
    """The parts of `span` that none of `named`, which are in order, covers."""
    start = span.start
    for other in named:
        if start < other.start and start < span.end:
            yield span.model_copy(update={"start": start, "end": min(other.start, span.end)})
        start = max(start, other.end)
    if start < span.end:
        yield span.model_copy(update={"start": start})
