"""`python -m examples.trainer`: fetch batches and check them, a line each; ends with 1 if one was faulty."""

import argparse
import sys

from examples.trainer.api import Registration, TrainerApi
from examples.trainer.checks import BatchReport, Limits, check_batch

MOST_FAULTS = 5


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m examples.trainer", description=__doc__)
    parser.add_argument("--api", default="http://127.0.0.1:8000")
    parser.add_argument("--batch-size", type=int, default=16, help="rows of a batch")
    parser.add_argument("--max-token-len", type=int, default=1024)
    parser.add_argument("--batches", type=int, default=10, help="how many to fetch")
    parser.add_argument("--starting-step", type=int, default=0)
    parser.add_argument(
        "--max-staleness", type=int, help="how many steps behind a token's weights may be; any, if absent"
    )
    asked = parser.parse_args()
    registration = Registration(
        batch_size=asked.batch_size,
        max_token_len=asked.max_token_len,
        num_steps=asked.batches,
        starting_step=asked.starting_step,
    )
    with TrainerApi(asked.api) as api:
        api.register(registration)
        faulty = 0
        seen: set[str] = set()
        for number, batch in zip(range(asked.batches), api.batches(), strict=False):
            step = asked.starting_step + number
            oldest = None if asked.max_staleness is None else step - asked.max_staleness
            report = check_batch(batch, Limits(asked.batch_size, asked.max_token_len, oldest))
            again = [group.group_id for group in batch if group.group_id in seen]
            seen |= {group.group_id for group in batch if group.group_id is not None}
            sys.stdout.write(line(number, report, len(again)) + "\n")
            sys.stdout.flush()
            for fault in report.faults[:MOST_FAULTS]:
                sys.stdout.write(f"  {fault}\n")
            faulty += bool(report.faults)
    return 1 if faulty else 0


def line(number: int, report: BatchReport, again: int) -> str:
    shown = [
        f"{report.groups} groups",
        f"{report.rows} rows",
        f"{report.tokens} tokens",
        f"{report.trained} trained",
        f"score {report.mean_score:.3f}",
        f"weights {' '.join(report.versions) or 'unknown'}",
        *([f"{again} groups served again"] if again else []),
        f"{len(report.faults)} FAULTS" if report.faults else "ok",
    ]
    return f"batch {number}: {', '.join(shown)}"


if __name__ == "__main__":
    sys.exit(main())
