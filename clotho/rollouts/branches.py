"""A rollout's tokens as training data: the sequences that a model was given and continued.

A turn whose prompt begins with all of a branch extends that branch; otherwise, where a template rewrote the
history, a turn was edited, the context compacted or a sub-agent began, it begins a new one. Every sampled token
is in exactly one branch, as it was sampled: no tokenizer is needed.

Masks come from here: a token is masked in, and trained on, if the model sampled it. What a chat template or a tool
added isn't. `clotho/training/rows.py` makes rows of branches.
Trainers get those in their own shapes, Atropos for one, with -100 where a token is masked out.
"""

from clotho.errors import JournalCorrupt
from clotho.frozen_model import FrozenModel
from clotho.identifiers.keys import turn_key
from clotho.models.backend import LogprobsMode, SampledTokens, SampledTurn, VersionSpan
from clotho.models.messages import ChatMessage
from clotho.models.sampling import Sampling
from clotho.rollouts.transcript import Transcript


class SampledSpan(FrozenModel):
    """Tokens [start, end) of a branch are those that one turn sampled."""

    turn: int
    start: int
    end: int
    sampling: Sampling
    """The sampling parameters that were sent."""
    logprobs_mode: LogprobsMode
    finish_reason: str | None


class Branch(FrozenModel):
    """A token sequence that a rollout's model saw whole; `ids`, `mask` and `logprobs` are equally long."""

    rollout: str
    index: int
    """Among the rollout's branches, in the order of their first turns."""
    ids: tuple[int, ...]
    mask: tuple[bool, ...]
    """True for each sampled token: the masks of training rows come from it."""
    logprobs: tuple[float, ...]
    """Natural logarithm; 0.0 where not sampled."""
    spans: tuple[SampledSpan, ...]
    """One for each turn, in order; nothing else is sampled."""
    versions: tuple[VersionSpan, ...]
    """Positions in `ids` whose weight version is known; in order, and within `spans`."""
    messages: tuple[ChatMessage, ...]
    """The conversation that the ids show; empty where it wasn't asked for."""

    @property
    def turns(self) -> tuple[int, ...]:
        return tuple(span.turn for span in self.spans)


def branches_of(rollout: str, transcript: Transcript, *, with_messages: bool = True) -> tuple[Branch, ...]:
    """The branches of `rollout`; none of its turns whose tokens aren't known (chat mode) is in any.

    Without messages, many branches of a long rollout cost no more than their tokens. Raises JournalCorrupt for a
    turn whose tokens, logprobs and versions don't fit together.
    """
    growing: list[_Growing] = []
    for turn, step in enumerate(transcript.steps):
        sampled = step.turn.sampled
        if sampled is None or sampled.tokens is None or (step.asked is not None and step.asked.aside):
            continue
        _check(sampled.tokens, turn_key(rollout, turn))
        # The last first: a program's sub-agents take turns beside its own conversation.
        begun = (branch for branch in reversed(growing) if branch.begins(sampled.tokens.prompt_ids))
        if (branch := next(begun, None)) is None:
            growing.append(branch := _Growing())
        branch.extend(turn, sampled, sampled.tokens)
    return tuple(
        branch.grown(rollout, index, _messages(transcript, branch) if with_messages else ())
        for index, branch in enumerate(growing)
    )


class _Growing:
    """A branch while turns are added to it."""

    def __init__(self) -> None:
        self._ids: list[int] = []
        self._mask: list[bool] = []
        self._logprobs: list[float] = []
        self._versions: list[VersionSpan] = []
        self.spans: list[SampledSpan] = []

    def begins(self, prompt_ids: tuple[int, ...]) -> bool:
        size = len(self._ids)
        # Its last token tells most apart, without a copy of all.
        last_fits = size <= len(prompt_ids) and prompt_ids[size - 1 : size] == tuple(self._ids[-1:])
        return last_fits and prompt_ids[:size] == tuple(self._ids)

    def extend(self, turn: int, sampled: SampledTurn, tokens: SampledTokens) -> None:
        self._append(tokens.prompt_ids[len(self._ids) :], None)
        start = len(self._ids)
        self._append(tokens.ids, tokens.logprobs)
        self._versions += [
            VersionSpan(version=span.version, start=start + span.start, end=start + span.end)
            for span in tokens.versions
        ]
        self.spans.append(
            SampledSpan(
                turn=turn,
                start=start,
                end=len(self._ids),
                sampling=sampled.sampling,
                logprobs_mode=tokens.logprobs_mode,
                finish_reason=sampled.finish_reason,
            )
        )

    def _append(self, ids: tuple[int, ...], logprobs: tuple[float, ...] | None) -> None:
        self._ids += ids
        self._mask += [logprobs is not None] * len(ids)
        self._logprobs += logprobs if logprobs is not None else [0.0] * len(ids)

    def grown(self, rollout: str, index: int, messages: tuple[ChatMessage, ...]) -> Branch:
        return Branch(
            rollout=rollout,
            index=index,
            ids=tuple(self._ids),
            mask=tuple(self._mask),
            logprobs=tuple(self._logprobs),
            spans=tuple(self.spans),
            versions=tuple(self._versions),
            messages=messages,
        )


def _check(tokens: SampledTokens, key: str) -> None:
    sampled = len(tokens.ids)
    if len(tokens.logprobs) != sampled:
        raise JournalCorrupt(f"{key}: {sampled} sampled tokens with {len(tokens.logprobs)} logprobs")
    end = 0
    for span in tokens.versions:
        if not end <= span.start <= span.end <= sampled:
            raise JournalCorrupt(f"{key}: weight versions that don't fit {sampled} sampled tokens")
        end = span.end


def _messages(transcript: Transcript, branch: _Growing) -> tuple[ChatMessage, ...]:
    last = branch.spans[-1].turn
    sampled = transcript.steps[last].turn.sampled
    return (*transcript.messages_before(last), *([sampled.message] if sampled else []))
