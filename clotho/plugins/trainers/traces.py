"""Rows as a trace of verifiers: each row is a branch of its own, whose nodes hold exactly the row's tokens."""

from collections.abc import Iterator, Sequence
from itertools import groupby

import verifiers.v1 as vf

from clotho.rollouts.outcome import Outcome
from clotho.training.rows import TrainingRow

STOPS = {
    Outcome.COMPLETED: "agent_completed",
    Outcome.CONTEXT_OVERFLOW: "max_total_tokens",
    Outcome.LIMIT_REACHED: "max_turns",
}


def record(trace: vf.Trace, rows: Sequence[TrainingRow]) -> None:
    """Write the rows of one finished rollout, and its reward, into `trace`."""
    for row in rows:
        _record_branch(trace, row)
    first = rows[0]
    trace.record_reward("clotho", first.reward)
    trace.info["clotho"] = first.model_dump(mode="json", exclude={"ids", "mask", "logprobs"})
    trace.stop(STOPS.get(first.outcome, first.outcome.value))
    trace.ok = True


def _record_branch(trace: vf.Trace, row: TrainingRow) -> None:
    parent: int | None = None
    for start, end in _spans(row.mask):
        sampled = row.mask[start]
        message = vf.AssistantMessage(content="") if sampled else vf.UserMessage(content="")
        node = vf.MessageNode(
            parent=parent,
            message=message,
            sampled=sampled,
            token_ids=list(row.ids[start:end]),
            mask=list(row.mask[start:end]),
            logprobs=list(row.logprobs[start:end]) if sampled else [],
        )
        parent = len(trace.nodes)
        trace.nodes.append(node)
        if sampled:
            usage = vf.Usage(prompt_tokens=start, completion_tokens=end - start)
            trace.calls.append(vf.ModelCall(node=parent, usage=usage))


def _spans(mask: Sequence[bool]) -> Iterator[tuple[int, int]]:
    """Where sampled tokens, or others, follow one another."""
    for _, positions in groupby(range(len(mask)), mask.__getitem__):
        found = list(positions)
        yield found[0], found[-1] + 1
