"""Metrics for wandb beside Atropos' own: outcomes, tool errors, turns, tokens and disturbances."""

from collections import Counter
from collections.abc import Sequence

from clotho.errors import truncate_middle
from clotho.rollouts.call import ToolError
from clotho.rollouts.group import GroupEntry
from clotho.training.siblings import Sibling

SHOWN_ERRORS = 20
ERROR_LIMIT = 200

Metrics = dict[str, float | int | str]


class Tally:
    """Counts of the groups since the last log."""

    def __init__(self) -> None:
        self._groups: list[tuple[GroupEntry, tuple[Sibling, ...]]] = []
        self._dropped: Counter[str] = Counter()

    def add(self, entry: GroupEntry, siblings: Sequence[Sibling]) -> None:
        self._groups.append((entry, tuple(siblings)))

    def add_dropped(self, reason: str) -> None:
        self._dropped[reason] += 1

    def flush(self) -> Metrics:
        """The metrics, once: the next call counts from zero."""
        siblings = [sibling for _, group in self._groups for sibling in group]
        repairs = sum(len(entry.repairs) for entry, _ in self._groups)
        dropped = {f"train/dropped/{reason}": count for reason, count in self._dropped.items()}
        self._groups, self._dropped = [], Counter()
        return {**dropped, **(_of_rollouts(siblings, repairs) if siblings else {})}


def _of_rollouts(siblings: Sequence[Sibling], repairs: int) -> Metrics:
    summaries = [sibling.summary for sibling in siblings]
    errors = [error for sibling in siblings for error in sibling.tool_errors]
    outcomes = Counter(str(summary.ending.outcome) for summary in summaries)
    count = len(summaries)
    metrics: Metrics = {
        "train/rollouts_scored": count,
        "train/reward_mean": sum(summary.score for summary in summaries) / count,
        "train/turns_mean": sum(summary.turns for summary in summaries) / count,
        "train/sampled_tokens": sum(summary.sampled_tokens for summary in summaries),
        "train/prompt_tokens": sum(summary.prompt_tokens for summary in summaries),
        "train/tool_calls": sum(summary.tool_calls for summary in summaries),
        "train/tool_errors_count": sum(summary.tool_errors for summary in summaries),
        "train/repairs": repairs,
        "train/resumed_turns": sum(summary.resumed_turns for summary in summaries),
        "train/sandbox_losses": sum(len(summary.losses) for summary in summaries),
    }
    disturbed = Counter(kind for sibling in siblings for kind in sibling.disturbances)
    metrics |= {f"train/disturbed/{kind}": number for kind, number in disturbed.items()}
    metrics |= {f"train/outcome/{outcome}": number for outcome, number in outcomes.items()}
    if errors:
        metrics["train/tool_error_details"] = "\n".join(map(_line, errors[:SHOWN_ERRORS]))
    return metrics


def _line(error: ToolError) -> str:
    arguments, text = truncate_middle(error.arguments, ERROR_LIMIT), truncate_middle(error.error, ERROR_LIMIT)
    return f"turn {error.turn} {error.tool_name}({arguments}): {text}"
