"""Failpoints: named points of a step at which tests inject faults. Unarmed, each costs a None check.

    CLOTHO_FAIL='turn.answered[run/g000001/r0/turn/0001]:pause,journal.write:delay=2'

A rule is `point[subject]:action`. The subject is a glob on what the point is passed for; without it, any.

- `kill@3`: SIGKILL to this process when the point is passed for the third time (by default the first).
- `pause@3`: the file `{folder}/{point}` appears, holding the process id and the subject, and this step alone
  stops until the file is removed. Of all processes that share the folder, the first one there stops, once.
- `delay=2`: every pass takes two seconds longer while the file `{folder}/{point}` exists.
"""

import asyncio
import itertools
import os
import re
import signal
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Literal, cast

from clotho.errors import InvalidInput

RULE = re.compile(
    r"(?P<point>[a-z_.]+)(\[(?P<subject>[^]]+)\])?"
    r":(?:(?P<action>kill|pause)(@(?P<hit>[1-9]\d*))?|(?P<delay>delay)=(?P<seconds>\d+(\.\d+)?))"
)
POLL_SECONDS = 0.01

Action = Literal["kill", "pause", "delay"]

_armed: "Mapping[str, FailPoint] | None" = None


async def reach(point: str, subject: str) -> None:
    """A step arrives at `point`, on behalf of `subject`: a journal key, a rollout or a group."""
    if _armed is not None and (armed := _armed.get(point)) is not None:
        await armed.reached(subject)


def arm(rules: str, folder: Path) -> None:
    """Arm this process's fail points, none for an empty text. Raises InvalidInput for what is no rule."""
    global _armed
    points = [_parsed(rule, folder) for rule in rules.split(",")] if rules else []
    _armed = {point.name: point for point in points} or None


@dataclass
class FailPoint:
    """One armed point of this process."""

    name: str
    subject: str
    action: Action
    hit: int
    seconds: float
    folder: Path
    _passes: "itertools.count[int]" = field(default_factory=lambda: itertools.count(1))

    @property
    def file(self) -> Path:
        return self.folder / self.name

    async def reached(self, subject: str) -> None:
        if not fnmatchcase(subject, self.subject):
            return
        if self.action == "delay":
            if self.file.exists():
                await asyncio.sleep(self.seconds)
        elif next(self._passes) == self.hit:
            if self.action == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            # in a thread: the process's other steps and heartbeats go on
            await asyncio.to_thread(self._pause, subject)

    def _pause(self, subject: str) -> None:
        try:
            # never removed: of all processes, also of those started later, one stops once
            Path(f"{self.file}.taken").touch(exist_ok=False)
        except FileExistsError:
            return
        unfinished = Path(f"{self.file}.unfinished")
        unfinished.write_text(f"{os.getpid()} {subject}")
        # renamed, so that a test that sees the file finds process and subject in it
        unfinished.rename(self.file)
        while self.file.exists():
            time.sleep(POLL_SECONDS)


def _parsed(rule: str, folder: Path) -> FailPoint:
    if (parts := RULE.fullmatch(rule)) is None:
        raise InvalidInput(f"fail point {rule!r}: write point[subject]:kill@N, :pause@N or :delay=SECONDS")
    action = cast(Action, parts["action"] or parts["delay"])
    hit, seconds = int(parts["hit"] or 1), float(parts["seconds"] or 0)
    return FailPoint(parts["point"], parts["subject"] or "*", action, hit, seconds, folder)
