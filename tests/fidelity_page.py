"""The page docs/fidelity.md, whose tables tests with a real vLLM fill: `make test-vllm WRITE=1`."""

from enum import IntEnum
from pathlib import Path

TURNS = """\
# Fidelity

Are the tokens and logprobs that a trainer gets those that the server sampled? `make test-vllm WRITE=1` measures
it: turns of the embedded model's weights, sampled by a real vLLM 0.32 on a CPU. The connection of every second
turn is cut after six events, and the turn goes on from its journalled tokens. The model's own generation_config
asks for another temperature, truncation, penalties and length, none of which may have an effect.

*same ids*: uncut turns have the ids of the same request, sent to the server itself. *off by*: the largest
difference to the logprobs that the embedded model computes for the same tokens, at temperature 1 where vLLM's
are `raw`, and at the turn's temperature where they are `processed` (`--logprobs-mode processed_logprobs`).
Clotho's probe at the start finds out which they are, and `serve` refuses those that would bias a trainer.

| endpoint | logprobs | temperature | turns | resumed | tokens | same ids | off by (nats) | `serve` |
|---|---|---|---|---|---|---|---|---|
"""
CONVERSATIONS = """
## Whole conversations

Tasks, the model's tool calls, their results and further questions, up to six turns each, at temperature 1.
Every second turn is cut off and goes on from its tokens. Every prompt must begin with the tokens of the turn
before, so that a conversation is one branch. Where a history was compacted, the next turn begins another. First
prompts must be those that vLLM renders itself. The other columns are as above.

| endpoint | logprobs | conversations | turns | calls | branches | resumed | tokens | same ids | off by (nats) |
|---|---|---|---|---|---|---|---|---|---|
"""
HARNESSES = """
## A program with a loop of its own

mini-swe-agent in a sandbox asks such a vLLM for a model with the tokenizer above, 16,000 positions and random
weights. It says *anything*, and mini-swe-agent forgets each answer and gives up after three. Or it says
*commands*, as a regular expression in its requests has vLLM allow nothing else, and mini-swe-agent runs them: such
tokens have the logprobs of the choice among those allowed, and `clotho export` leaves them out as biased.

*tokens*: those that vLLM sent, read between it and Clotho. *in rows*: the share of them that is masked in, in the
rows of `clotho export --format tokens` or in what rows are made of. *off by*: the largest difference of their
logprobs from those that transformers computes in single precision.

| endpoint | says | rollouts | calls | longest prompt | rows | tokens | in rows | off by (nats) |
|---|---|---|---|---|---|---|---|---|
"""
HEADS = (TURNS, CONVERSATIONS, HARNESSES)


class Table(IntEnum):
    """The tables of the page, in their order."""

    TURNS = 0
    CONVERSATIONS = 1
    HARNESSES = 2


def write_row(path: Path, table: Table, keys: int, cells: tuple[str, ...]) -> None:
    """Put a row into one of the page's tables, in the place of that with the same first `keys` cells."""
    rest = path.read_text() if path.exists() else ""
    tables: list[list[str]] = []
    for head in reversed(HEADS):
        rest, _, part = rest.partition(head)
        tables.insert(0, [line for line in part.splitlines() if line.startswith("| vllm")])
    key = f"| {' | '.join(cells[:keys])} |"
    kept = [row for row in tables[table] if not row.startswith(key)]
    tables[table] = sorted([*kept, f"| {' | '.join(cells)} |"])
    page = "".join(
        head + "".join(f"{row}\n" for row in rows) for head, rows in zip(HEADS, tables, strict=True)
    )
    path.write_text(page)
