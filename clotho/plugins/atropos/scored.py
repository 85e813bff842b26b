"""A finished group as rows of Atropos: row j of every sibling makes branch group j, and each is a whole group."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from clotho.errors import GroupRejected, Rejection
from clotho.identifiers.ids import branch_group_id
from clotho.models.messages import ChatMessage
from clotho.models.sampling import Sampling
from clotho.training.fitness import check_whole, oldest_step
from clotho.training.rows import TrainingRow, rows_of
from clotho.training.siblings import ALL, Exclusion, Sibling

# Atropos' marks of a token that isn't trained on, in masks and in inference_logprobs
MASKED = -100
MASKED_LOGPROB = 1.0
FILLER_TOKENS = 2
"""Tokens of the row for a branch that a sibling doesn't have: enough for a trainer that shifts by one."""


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
            # BaseEnv looks into these two without asking whether they are there
            "group_overrides": {},
            "overrides": None,
            "images": None,
        }


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
    check_whole(group, siblings, size)
    siblings = exclusion.mask_excluded(group, siblings)
    if any(sibling.chat for sibling in siblings):
        return (branch_group_for_reading(group, siblings),)
    sampled = rows_of(group, siblings, max_tokens)
    spare = next(row for rows in sampled for row in rows if row.ids)
    scores = tuple(sibling.summary.score for sibling in siblings)
    # every branch group has a row and the score of each sibling: the API keeps groups of another size for ever,
    # and trainers normalise scores within a group
    made = []
    for number in range(max(map(len, sampled))):
        rows = tuple(
            _row(sibling, own, number, spare) for sibling, own in zip(siblings, sampled, strict=True)
        )
        parameters = _parameters(siblings, rows, trainable=True)
        made.append(BranchGroup(branch_group_id(group, number), rows, scores, parameters))
    return tuple(made)


def readable_branch_groups(
    group: str, siblings: Sequence[Sibling], size: int, exclusion: Exclusion = ALL
) -> tuple[BranchGroup, ...]:
    """Like `branch_groups_of`; a group that no trainer should see becomes one branch group for reading."""
    try:
        return branch_groups_of(group, siblings, size, exclusion=exclusion)
    except GroupRejected as rejected:
        return (branch_group_for_reading(group, siblings, rejected.reason),)


def branch_group_for_reading(
    group: str, siblings: Sequence[Sibling], why: Rejection = Rejection.CHAT_MODE
) -> BranchGroup:
    """The group for reading: its conversations and scores, and empty rows."""
    rows = tuple(Row([], [], [], sibling.messages, (), False) for sibling in siblings)
    parameters = {**_parameters(siblings, rows, trainable=False), "rejected": why}
    return BranchGroup(group, rows, tuple(sibling.summary.score for sibling in siblings), parameters)


def oldest_version(branch_groups: Sequence[BranchGroup]) -> int | None:
    """The first trainer's step that any trained token's weights were of; None unless all are known."""
    return oldest_step(row for branch_group in branch_groups for row in branch_group.rows)


def wire_message(message: ChatMessage) -> dict[str, Any]:
    """The message with content in any case: Atropos' API refuses one without."""
    wire: dict[str, Any] = dict(message.wire())
    wire["content"] = wire["content"] or ""
    return wire


def _row(sibling: Sibling, own: Sequence[TrainingRow], number: int, spare: TrainingRow) -> Row:
    if number >= len(own) or not own[number].ids:
        # of the sibling's own tokens if it has any: they are masked, and only have to be valid
        tokens = list((own[0].ids or spare.ids)[:FILLER_TOKENS])
        masked = len(tokens)
        return Row(tokens, [MASKED] * masked, [MASKED_LOGPROB] * masked, sibling.messages, (), True)
    row = own[number]
    return Row(
        tokens=list(row.ids),
        masks=[token if trained else MASKED for token, trained in zip(row.ids, row.mask, strict=True)],
        logprobs=[
            logprob if trained else MASKED_LOGPROB
            for logprob, trained in zip(row.logprobs, row.mask, strict=True)
        ],
        messages=sibling.branches[number].messages,
        weight_versions=row.weight_versions,
        versions_known=row.versions_known,
        sampled_by=row.sampled_by,
    )


def _parameters(siblings: Sequence[Sibling], rows: Sequence[Row], *, trainable: bool) -> dict[str, Any]:
    """The parameters and weight versions that the rows were sampled with."""
    sampling = next((sibling.sampling for sibling in siblings if sibling.sampling is not None), Sampling())
    modes = {span.logprobs_mode for sibling in siblings for one in sibling.branches for span in one.spans}
    return {
        # seeds are each turn's own
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
