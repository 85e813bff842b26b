"""The reference page of token rows."""

from clotho.training.rows import TrainingRow
from docs.generate.fields import code, described_fields, kind, table

INTRODUCTION = """\
# Token rows

This page is written by `python -m docs.generate` from the code.

```sh
clotho export RUN --format tokens --output rows.jsonl
clotho export RUN --format tokens --output rows.parquet
```

A row is one sequence of tokens to train on, with its rollout's reward. Parquet needs the extra `datasets`. Atropos'
groups are made of the same rows.

- **Rows of a rollout.** A rollout has a row for each branch: where its history was rewritten, a new one begins.
  Every sampled token is in exactly one row. Where a run attributes delegated tasks, children's branches are rows of
  the rollout that delegated them, with its reward.
- **No advantages.** A group's rows have the same `group`. To compute a baseline, count each `rollout` once. A
  rollout without anything to train on has one row without tokens, so that its reward counts.
- **Left out are groups** sampled in chat mode, with rewards or logprobs that are no numbers, without any sampled
  token, or sampled with a temperature, truncation or penalty that their logprobs aren't known to include. The
  command says how many, and why.
- **Marked are rollouts** that were disturbed: restored, diverged, resumed, repaired, replaced. `--exclude KIND`
  takes the tokens of such rollouts out. Their rewards stay.
- **Failed and cancelled rollouts** have no rows: they have no reward, and their groups aren't finished.
- **The age** of a row is told by `versions`: trainers bound it by their own step.
"""


def tokens_page() -> str:
    rows = (
        (code(name), kind(field.annotation), meaning)
        for name, field, meaning in described_fields(TrainingRow)
    )
    versions = (
        "`versions` holds objects with `version` (text), `start` and `end` (positions, the end excluded)."
    )
    return "\n".join((INTRODUCTION, table(("field", "type", "meaning"), rows), "", versions)) + "\n"
