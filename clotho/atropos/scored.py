"""A finished group as rows of tokens: branch j of every sibling makes branch group j, and each is a whole group."""

import asyncio
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from clotho.errors import GroupRejected
from clotho.identifiers.ids import branch_group_id, run_of
from clotho.journal import Journal
from clotho.models.backend import step_of
from clotho.models.messages import ChatMessage
from clotho.models.sampling import Sampling
from clotho.rollouts.branches import Branch, branches_of
from clotho.rollouts.call import ToolError
from clotho.rollouts.group import GroupEntry, RepairEntry
from clotho.rollouts.rollout import RolloutSummary
from clotho.rollouts.transcript import Transcript, read_transcript
from clotho.runs.children import Descendant, all_descendants, are_attributed
from clotho.runs.disturbances import Disturbance, disturbances_with_children, repairs_of

MASKED = -100
MASKED_LOGPROB = 1.0
FILLER_TOKENS = 2
"""Tokens of the row for a branch that a sibling doesn't have: enough for a trainer that shifts by one."""
ROUNDING = 1e-3
"""Logprobs that servers round to just above zero are zero."""


@dataclass(frozen=True)
class Sibling:
    """One rollout of a group, ready for conversion."""

    summary: RolloutSummary
    branches: tuple[Branch, ...]
    messages: tuple[ChatMessage, ...]
    sampling: Sampling | None
    chat: bool
    """Some of its turns were sampled without tokens."""
    tool_errors: tuple[ToolError, ...] = ()
    repairs: tuple[RepairEntry, ...] = ()
    """The repairs of its group that led to it."""
    children: tuple[RolloutSummary, ...] = ()
    """The rollouts that did tasks which it, or one of them, delegated."""
    excluded: bool = False
    """True if the rollout is left out of training because of its disturbances."""

    @classmethod
    def of(
        cls,
        summary: RolloutSummary,
        transcript: Transcript,
        repairs: Sequence[RepairEntry] = (),
        children: Sequence[Descendant] = (),
        attributed: bool = False,
    ) -> "Sibling":
        """`attributed`: the branches of `children` are trained on as well, with this rollout's score."""
        trained = [(summary, transcript), *(children if attributed else ())]
        sampled = [
            step.turn.sampled for _, did in trained for step in did.steps if step.turn.sampled is not None
        ]
        return cls(
            summary=summary,
            branches=tuple(each for end, did in trained for each in branches_of(end.rollout, did)),
            messages=transcript.messages,
            sampling=sampled[0].sampling if sampled else None,
            chat=any(turn.tokens is None for turn in sampled),
            tool_errors=transcript.tool_errors,
            repairs=repairs_of(summary.rollout, repairs),
            children=tuple(end for end, _ in children),
        )

    @property
    def disturbances(self) -> tuple[Disturbance, ...]:
        return disturbances_with_children(self.summary, self.children, self.repairs)

    def exclude(self) -> "Sibling":
        """The same without anything to train on."""
        return replace(self, branches=(), excluded=True)


@dataclass(frozen=True)
class Exclusion:
    """The rollouts to leave out of training, by their disturbances."""

    kinds: frozenset[Disturbance] = frozenset()
    whole_groups: bool = False
    """Their groups, too; else their rows are masked, and their scores count in their groups."""

    def applied(self, group: str, siblings: Sequence[Sibling]) -> tuple[Sibling, ...]:
        """The siblings, those to be kept out with nothing to train on; raises GroupRejected if no group is left."""
        out = [not self.kinds.isdisjoint(sibling.disturbances) for sibling in siblings]
        if out and (all(out) or (any(out) and self.whole_groups)):
            found = sorted({kind for sibling in siblings for kind in self.kinds & {*sibling.disturbances}})
            raise GroupRejected(
                "excluded", f"{group}: {sum(out)} of {len(out)} rollouts were {', '.join(found)}"
            )
        return tuple(one.exclude() if left else one for one, left in zip(siblings, out, strict=True))


ALL = Exclusion()


@dataclass(frozen=True)
class Row:
    """One sequence. `masks` holds the token's id where it is trained on; the three lists are equally long."""

    tokens: list[int]
    masks: list[int]
    logprobs: list[float]
    messages: tuple[ChatMessage, ...]
    weight_versions: tuple[str, ...]
    """Weight versions of the trained tokens, as far as known, in the order of sampling."""
    versions_known: bool
    sampled_by: str | None = None
    """The rollout, which may be a child, whose tokens are trained on; None where there are none."""


@dataclass(frozen=True)
class BranchGroup:
    """One ScoredDataGroup: a row and a score for every sibling."""

    group_id: str
    rows: tuple[Row, ...]
    scores: tuple[float, ...]
    generation_params: dict[str, Any]

    def wire(self) -> dict[str, Any]:
        """The ScoredDataGroup for Atropos' BaseEnv and API."""
        return {
            "group_id": self.group_id,
            "tokens": [row.tokens for row in self.rows],
            "masks": [row.masks for row in self.rows],
            "scores": list(self.scores),
            "advantages": None,
            "ref_logprobs": None,
            "inference_logprobs": [row.logprobs for row in self.rows],
            "messages": [[wire_message(message) for message in row.messages] for row in self.rows],
            "generation_params": self.generation_params,
            # BaseEnv looks into these two without asking whether they are there.
            "group_overrides": {},
            "overrides": None,
            "images": None,
        }


async def read_siblings(journal: Journal, entry: GroupEntry) -> tuple[Sibling, ...]:
    """The group's rollouts in their order. Raises JournalCorrupt."""
    transcripts = await asyncio.gather(
        *(read_transcript(journal, summary.rollout, summary.turns) for summary in entry.siblings)
    )
    children = await asyncio.gather(*(all_descendants(journal, transcript) for transcript in transcripts))
    attributed = any(children) and await are_attributed(journal, run_of(entry.siblings[0].rollout))
    siblings = list(zip(entry.siblings, transcripts, children, strict=True))
    return await asyncio.to_thread(
        lambda: tuple(
            Sibling.of(summary, transcript, entry.repairs, did, attributed)
            for summary, transcript, did in siblings
        )
    )


def branch_groups_of(
    group: str,
    siblings: Sequence[Sibling],
    size: int,
    max_tokens: int | None = None,
    exclusion: Exclusion = ALL,
) -> tuple[BranchGroup, ...]:
    """The group as branch groups of exactly `size` rows, each with the scores of all siblings.

    Rows of chat-mode groups are empty lists. A row of `max_tokens` or more is over-length: trainers refuse it.
    Raises GroupRejected for groups that no trainer should see.
    """
    _check_complete(group, siblings, size)
    siblings = exclusion.applied(group, siblings)
    if any(sibling.chat for sibling in siblings):
        return (untrained_branch_group(group, siblings),)
    branch_groups = max(len(sibling.branches) for sibling in siblings)
    if branch_groups == 0:
        raise GroupRejected("nothing_sampled", f"{group}: no sibling sampled a token")
    spare = next(sibling.branches[0] for sibling in siblings if sibling.branches)
    scores = tuple(sibling.summary.score for sibling in siblings)
    made = []
    for number in range(branch_groups):
        rows = tuple(_row(sibling, number, spare) for sibling in siblings)
        _check_lengths(group, rows, max_tokens)
        made.append(
            BranchGroup(
                branch_group_id(group, number), rows, scores, _parameters(siblings, rows, trainable=True)
            )
        )
    return tuple(made)


def readable_branch_groups(
    group: str, siblings: Sequence[Sibling], size: int, exclusion: Exclusion = ALL
) -> tuple[BranchGroup, ...]:
    """Like `branch_groups_of`; a group that no trainer should see becomes one branch group for reading."""
    try:
        return branch_groups_of(group, siblings, size, exclusion=exclusion)
    except GroupRejected as rejected:
        return (untrained_branch_group(group, siblings, rejected.reason),)


def untrained_branch_group(group: str, siblings: Sequence[Sibling], why: str = "chat_mode") -> BranchGroup:
    """The group for reading: its conversations and scores, and empty rows."""
    rows = tuple(Row([], [], [], sibling.messages, (), False) for sibling in siblings)
    parameters = {**_parameters(siblings, rows, trainable=False), "rejected": why}
    return BranchGroup(group, rows, tuple(sibling.summary.score for sibling in siblings), parameters)


def oldest_version(branch_groups: Sequence[BranchGroup]) -> int | None:
    """The first trainer's step that any trained token's weights were of; None unless all are known."""
    rows = [row for branch_group in branch_groups for row in branch_group.rows]
    versions = [version for row in rows for version in row.weight_versions]
    if not versions or not all(row.versions_known for row in rows):
        return None
    steps = [step for version in versions if (step := step_of(version)) is not None]
    return min(steps) if len(steps) == len(versions) else None


def wire_message(message: ChatMessage) -> dict[str, Any]:
    """The message with content in any case: Atropos' API refuses one without."""
    wire: dict[str, Any] = dict(message.wire())
    wire["content"] = wire["content"] or ""
    return wire


def _check_complete(group: str, siblings: Sequence[Sibling], size: int) -> None:
    if len(siblings) != size:
        raise GroupRejected("incomplete", f"{group} has {len(siblings)} scored rollouts and needs {size}")
    for sibling in siblings:
        if not math.isfinite(sibling.summary.score):
            raise GroupRejected(
                "non_finite", f"{sibling.summary.rollout} has the score {sibling.summary.score}"
            )


def _check_lengths(group: str, rows: Sequence[Row], max_tokens: int | None) -> None:
    longest = max(len(row.tokens) for row in rows)
    if max_tokens is not None and longest >= max_tokens:
        raise GroupRejected(
            "over_length", f"{group}: a row has {longest} tokens, the trainer takes {max_tokens - 1}"
        )


def _row(sibling: Sibling, number: int, spare: Branch) -> Row:
    if number >= len(sibling.branches):
        start = (sibling.branches[0] if sibling.branches else spare).ids[:FILLER_TOKENS]
        tokens = list(start)
        return Row(tokens, [MASKED] * len(start), [MASKED_LOGPROB] * len(start), sibling.messages, (), True)
    branch = sibling.branches[number]
    _check_logprobs(branch)
    known = sum(span.end - span.start for span in branch.versions)
    return Row(
        tokens=list(branch.ids),
        masks=[token if trained else MASKED for token, trained in zip(branch.ids, branch.mask, strict=True)],
        logprobs=[
            min(logprob, 0.0) if trained else MASKED_LOGPROB
            for logprob, trained in zip(branch.logprobs, branch.mask, strict=True)
        ],
        messages=branch.messages,
        weight_versions=tuple(dict.fromkeys(span.version for span in branch.versions)),
        versions_known=known == sum(branch.mask),
        sampled_by=branch.rollout,
    )


def _check_logprobs(branch: Branch) -> None:
    name = f"{branch.rollout}, branch {branch.index}"
    sampled = [logprob for logprob, trained in zip(branch.logprobs, branch.mask, strict=True) if trained]
    bad = next((one for one in sampled if not math.isfinite(one) or one > ROUNDING), None)
    if bad is not None:
        raise GroupRejected("non_finite", f"{name} has a token of logprob {bad}")
    for span in branch.spans:
        if span.logprobs_mode != "processed" and (reshaping := span.sampling.distribution_changes):
            raise GroupRejected(
                "biased",
                f"{name}: turn {span.turn} was sampled with {', '.join(reshaping)}, "
                f"of which its logprobs aren't known to be ({span.logprobs_mode})",
            )


def _parameters(siblings: Sequence[Sibling], rows: Sequence[Row], *, trainable: bool) -> dict[str, Any]:
    """The parameters and weight versions that the rows were sampled with."""
    sampling = next((sibling.sampling for sibling in siblings if sibling.sampling is not None), Sampling())
    modes = {span.logprobs_mode for sibling in siblings for one in sibling.branches for span in one.spans}
    return {
        **sampling.model_dump(mode="json", exclude={"seed"}),
        "trainable": trainable,
        "logprobs_mode": modes.pop() if len(modes) == 1 else None,
        "rollouts": [sibling.summary.rollout for sibling in siblings],
        "children": [[child.rollout for child in sibling.children] for sibling in siblings],
        "sampled_by": [row.sampled_by for row in rows],
        "disturbances": [[str(kind) for kind in sibling.disturbances] for sibling in siblings],
        "sandbox_losses": [[str(loss) for loss in sibling.summary.losses] for sibling in siblings],
        "resumed_turns": [sibling.summary.resumed_turns for sibling in siblings],
        "repairs": [len(sibling.repairs) for sibling in siblings],
        "excluded": [sibling.excluded for sibling in siblings],
        "replacement_of": [sibling.summary.replacement_of for sibling in siblings],
        "weight_versions": [list(row.weight_versions) for row in rows],
    }
