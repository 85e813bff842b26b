"""A store whose runs have what pages must show well: long lines, Markdown, code, diffs, tracebacks, failures."""

import json
from collections.abc import Sequence

from clotho.identifiers.ids import group_id, rollout_id
from clotho.identifiers.keys import (
    attempt_prefix,
    budget_prefix,
    call_key,
    campaign_request_prefix,
    end_key,
    group_repairs_prefix,
    prompt_key,
    reward_key,
    scored_key,
    tools_key,
    turn_key,
)
from clotho.journal import Journal
from clotho.models.backend import SampledTurn, Usage
from clotho.models.messages import ChatMessage, FunctionCall, ToolCall
from clotho.models.sampling import Sampling
from clotho.rollouts.budget import BudgetEntry, Price, Spending
from clotho.rollouts.call import CallEntry
from clotho.rollouts.campaign import CampaignRequest
from clotho.rollouts.group import AttemptEntry, GroupEntry, RepairEntry, SiblingFailure, ToolManifest
from clotho.rollouts.outcome import Ending, Limits, Outcome
from clotho.rollouts.rollout import EndEntry, Prompt, RolloutSummary
from clotho.rollouts.task_queues import TaskQueues
from clotho.rollouts.turn import TurnEntry
from clotho.rollouts.verification import RewardEntry
from clotho.tools.files.diff import unified
from tests.viewer.stored import write_run

SCORED, BEGUN, BROKEN = "first", "begun", "broken"
LONG = group_id(SCORED, 0)
TRACEBACK = """\
EnvironmentFailed: RuntimeError: the service answered 502
Traceback (most recent call last):
  File "/work/environments/fix_it.py", line 41, in prepare
    response = await self.client.get(f"{self.address}/repositories/{item['repository']}/archive/{item['commit']}")
  File "/work/environments/client.py", line 17, in get
    raise RuntimeError(f"the service answered {response.status_code}")
RuntimeError: the service answered 502"""
ASKED = """\
# Fix the parser

`parse_duration("1h30m")` returns **90** where it should return **5400**. Make the
tests in `tests/test_duration.py` pass:

1. read the failing test,
2. change *only* `duration.py`,
3. run `pytest -q`.

```python
def test_hours_and_minutes() -> None:
    assert parse_duration("1h30m") == 5400
```

| unit | seconds |
| --- | ---: |
| `h` | 3600 |
| `m` | 60 |

See [the format](https://www.iso.org/iso-8601-date-and-time-format.html) and ![a diagram](http://elsewhere.example/x.png).
"""
BEFORE = '''\
"""Durations as people write them."""

import re

PART = re.compile(r"(\\d+)([hms])")


def parse_duration(text: str) -> int:
    """Seconds of a duration such as 1h30m."""
    total = 0
    for number, unit in PART.findall(text):
        total += int(number)
    return total
'''
AFTER = BEFORE.replace("PART = re", 'SECONDS = {"h": 3600, "m": 60, "s": 1}\nPART = re').replace(
    "int(number)", "int(number) * SECONDS[unit]"
)
COUNTED = """\
pytest -q && git -C /work diff --stat && for file in $(ls /work/*.py); do wc -l "$file" | tee -a /tmp/lines; done"""
FAILED = """\
FF                                                                                                     [100%]
================================================== FAILURES ===================================================
    def test_hours_and_minutes() -> None:
>       assert parse_duration("1h30m") == 5400
E       AssertionError: assert 31 == 5400
Traceback (most recent call last):
  File "/work/tests/test_duration.py", line 9, in test_hours_and_minutes
    assert parse_duration("1h30m") == 5400
AssertionError
2 failed in 0.04s"""
EXPLAINED = """\
The loop adds the *numbers* and forgets the **units**. I'll keep a table of seconds and multiply:

- `h` is 3600 seconds
- `m` is 60 seconds
  - and `s` is one

> Durations without a unit stay an error.

```diff
-        total += int(number)
+        total += int(number) * SECONDS[unit]
```
"""


def turn(
    number: int, content: str | None, *calls: tuple[str, dict[str, object]], reasoning: str = ""
) -> TurnEntry:
    asked = tuple(
        ToolCall(id=f"call-{at}", function=FunctionCall(name=name, arguments=json.dumps(arguments)))
        for at, (name, arguments) in enumerate(calls)
    )
    return TurnEntry(
        sampled=SampledTurn(
            message=ChatMessage(
                role="assistant", content=content, reasoning_content=reasoning or None, tool_calls=asked
            ),
            finish_reason="tool_calls" if calls else "stop",
            usage=Usage(prompt_tokens=900 + 300 * number, completion_tokens=120 + 7 * number),
            model="qwen3-8b",
            sampling=Sampling(),
            started=1_790_000_000.0 + 4 * number,
            seconds=1.4,
        )
    )


def answer(tool: str, number: int, exit_code: int | None = None, **result: object) -> CallEntry:
    return CallEntry(
        tool=tool,
        content=json.dumps(
            {**result, "exit_code": exit_code, "error": None} if exit_code is not None else result
        ),
        error=None,
        state={},
        lease=0,
        started=1_790_000_001.6 + 4 * number,
        seconds=0.3,
        changes=True,
        exit_code=exit_code,
    )


def transcript(rounds: int) -> list[tuple[TurnEntry, Sequence[CallEntry]]]:
    """A rollout that looks, writes, patches and tests, `rounds` times."""
    turns: list[tuple[TurnEntry, Sequence[CallEntry]]] = []

    def add(
        content: str | None, tool: str, arguments: dict[str, object], exit_code: int | None, **result: object
    ) -> None:
        number = len(turns)
        reasoning = "The test names **hours**, so the table needs `h`." if number % 4 == 1 else ""
        entry = turn(number, content, (tool, arguments), reasoning=reasoning)
        turns.append((entry, [answer(tool, number, exit_code, **result)]))

    for _ in range(rounds):
        add(
            "Let me look at the tests first.",
            "terminal",
            {"command": "cd /work && pytest -q 2>&1 | tail -n 20"},
            1,
            output=FAILED,
        )
        add(
            EXPLAINED,
            "write_file",
            {"path": "/work/duration.py", "content": BEFORE},
            None,
            bytes_written=len(BEFORE),
            lint={"status": "ok"},
        )
        replaced: dict[str, object] = {
            "mode": "replace",
            "path": "/work/duration.py",
            "old_string": BEFORE,
            "new_string": AFTER,
        }
        add(
            None,
            "patch",
            replaced,
            None,
            success=True,
            diff=unified("/work/duration.py", BEFORE, AFTER),
            files_modified=["/work/duration.py"],
        )
        add(
            "Now the whole suite.",
            "terminal",
            {"command": COUNTED},
            0,
            output="2 passed in 0.03s\n" + "x" * 300,
        )
    turns.append((turn(len(turns), "**Done.** `parse_duration` multiplies by the seconds of each unit."), ()))
    return turns


async def write_transcript(
    journal: Journal, rollout: str, item: dict[str, str], rounds: int, score: float | None
) -> RolloutSummary:
    """A rollout with its turns; one with a score has ended."""
    asked = ChatMessage(role="user", content=ASKED)
    system = ChatMessage(role="system", content="You are an engineer. Use the tools.")
    await journal.write(prompt_key(rollout), Prompt(item=item, messages=(system, asked), seed=0))
    turns = transcript(rounds)
    for number, (entry, answers) in enumerate(turns if score is not None else turns[:-2]):
        await journal.write(turn_key(rollout, number), entry)
        for at, result in enumerate(answers):
            await journal.write(call_key(rollout, f"{number:04}-{at:02}"), result)
    summary = summary_of(rollout, score or 0.0, len(turns))
    if score is not None:
        reward = RewardEntry(
            score=score,
            breakdown={"tests": score, "style": 0.5},
            log=FAILED,
            lease=None,
            epoch=0,
            seconds=0.8,
        )
        await journal.write(reward_key(rollout), reward)
        await journal.write(end_key(rollout), EndEntry(summary=summary))
    return summary


def summary_of(rollout: str, score: float, turns: int) -> RolloutSummary:
    return RolloutSummary(
        rollout=rollout,
        ending=Ending(outcome=Outcome.COMPLETED),
        score=score,
        turns=turns,
        tool_calls=turns - 1,
        tool_errors=turns // 5,
        prompt_tokens=1_500 * turns,
        sampled_tokens=140 * turns,
        active_seconds=2.1 * turns,
    )


async def write_gallery(journal: Journal, groups: int = 12) -> None:
    """A scored run with a price, one that has begun, and one whose group failed."""
    for run, items in ((SCORED, groups), (BEGUN, 8), (BROKEN, 3)):
        await write_run(journal, run, items)
        await journal.append(
            campaign_request_prefix(run),
            CampaignRequest(
                run=run,
                environment="e",
                groups=items,
                group_size=4,
                limits=Limits(),
                task_queues=TaskQueues(),
            ),
        )
    await journal.append(budget_prefix(SCORED), BudgetEntry(price=Price(prompt=0.4, sampled=1.6)))
    for number in range(groups):
        await _scored(journal, number)
    for number in range(3):
        await write_transcript(journal, rollout_id(group_id(BEGUN, 0), number), {"id": "item-0"}, 1, None)
    failed = group_id(BROKEN, 0)
    await write_transcript(journal, rollout_id(failed, 0), {"id": "item-0"}, 1, None)
    failures = [
        SiblingFailure(workflow=rollout_id(failed, at), kind="EnvironmentFailed", reason=TRACEBACK)
        for at in range(2)
    ]
    await journal.write(f"{attempt_prefix(failed)}000", AttemptEntry(siblings=(), failures=tuple(failures)))


async def _scored(journal: Journal, number: int) -> None:
    group = group_id(SCORED, number)
    item = {
        "id": f"item-{number}",
        "repository": "durations",
        "issue": "`1h30m` is 90 seconds\nand should be 5400",
    }
    scores = [(number * 3 + at * 5) % 11 / 10 if number % 3 else float(at % 2) for at in range(4)]
    if number < 2:
        rounds = [14 if group == LONG and not at else 3 - 2 * number for at in range(4)]
        siblings = [
            await write_transcript(journal, rollout_id(group, at), item, rounds[at], scores[at])
            for at in range(4)
        ]
    else:
        siblings = [
            summary_of(rollout_id(group, at), score, 3 + (number + at * 7) % 20)
            for at, score in enumerate(scores)
        ]
    failure = SiblingFailure(
        workflow=rollout_id(group, 1), kind="HostUnavailable", reason="its host doesn't answer"
    )
    repairs = (RepairEntry(failure=failure, turns=1, sampled_tokens=220, continued_as=rollout_id(group, 1)),)
    if not number % 5:
        await journal.write(f"{group_repairs_prefix(group)}000-000", repairs[0])
    await journal.write(
        tools_key(group), ToolManifest(toolsets=("file", "terminal"), tools=(), unavailable={})
    )
    entry = GroupEntry(
        item=item,
        toolsets=("file", "terminal"),
        siblings=tuple(siblings),
        repairs=repairs if not number % 5 else (),
        spent=Spending(
            prompt_tokens=sum(each.prompt_tokens for each in siblings),
            cached_prompt_tokens=900,
            sampled_tokens=sum(each.sampled_tokens for each in siblings),
        ),
    )
    await journal.write(scored_key(group), entry)
