"""The rollouts of a finished group, read from the store, and which of them are left out of training."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace

from clotho.errors import GroupRejected, Rejection
from clotho.identifiers.ids import item_name, run_of
from clotho.journal import Journal
from clotho.models.messages import ChatMessage
from clotho.models.sampling import Sampling
from clotho.rollouts.branches import Branch, branches_of
from clotho.rollouts.call import ToolError
from clotho.rollouts.group import GroupEntry, RepairEntry
from clotho.rollouts.rollout import RolloutSummary
from clotho.rollouts.transcript import Transcript, read_transcript
from clotho.runs.children import Descendant, all_descendants, are_attributed
from clotho.runs.disturbances import Disturbance, disturbances_with_children, repairs_of


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
    item: str = ""
    """The name of its group's item."""

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
            item=item_name(transcript.prompt.item),
        )

    @property
    def disturbances(self) -> tuple[Disturbance, ...]:
        return disturbances_with_children(self.summary, self.children, self.repairs)

    def exclude(self) -> "Sibling":
        """Copy of the rollout without anything to train on."""
        return replace(self, branches=(), excluded=True)


@dataclass(frozen=True)
class Exclusion:
    """The rollouts to leave out of training, by their disturbances."""

    kinds: frozenset[Disturbance] = frozenset()
    whole_groups: bool = False
    """Their groups, too; else their rows are masked, and their scores count in their groups."""

    def mask_excluded(self, group: str, siblings: Sequence[Sibling]) -> tuple[Sibling, ...]:
        """The siblings, of which the excluded ones have nothing to train on.

        Raises GroupRejected if all are excluded, or if one is and `whole_groups` is set.
        """
        out = [not self.kinds.isdisjoint(sibling.disturbances) for sibling in siblings]
        if out and (all(out) or (any(out) and self.whole_groups)):
            found = sorted({kind for sibling in siblings for kind in self.kinds & {*sibling.disturbances}})
            raise GroupRejected(
                Rejection.EXCLUDED, f"{group}: {sum(out)} of {len(out)} rollouts were {', '.join(found)}"
            )
        return tuple(one.exclude() if left else one for one, left in zip(siblings, out, strict=True))


ALL = Exclusion()


async def read_siblings(journal: Journal, entry: GroupEntry) -> tuple[Sibling, ...]:
    """The group's rollouts in their order. Raises JournalCorrupt."""
    transcripts = await asyncio.gather(
        *(read_transcript(journal, summary.rollout, summary.turns) for summary in entry.siblings)
    )
    children = await asyncio.gather(*(all_descendants(journal, transcript) for transcript in transcripts))
    attributed = any(children) and await are_attributed(journal, run_of(entry.siblings[0].rollout))
    siblings = list(zip(entry.siblings, transcripts, children, strict=True))
    # in a thread: branches of long transcripts take time to build
    return await asyncio.to_thread(
        lambda: tuple(
            Sibling.of(summary, transcript, entry.repairs, did, attributed)
            for summary, transcript, did in siblings
        )
    )
