"""How far a worker process is behind with the rollouts that it has begun.

A process that has begun more rollouts than it keeps up with is late with every step of each. Steps that aren't done
within their workflow's task go on as regular activities, and tasks that aren't done in their time are given out
again; both cost more than the step itself, so that the process falls behind further. One that is behind therefore
begins none: it takes no further workflow (`clotho/temporal/workflow_slots.py`), and lets no first turn ask a model
(`clotho/models/gate.py`). In the queue of all processes a workflow waits for as long as it takes, or until another
process is free.
"""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

MOST_COMPUTING = 8
"""Workflow tasks that compute at once, up to which a process keeps up."""
LEAST_OPEN = 4
"""Workflow tasks that a process has open at least, while first turns are held back."""
BEARABLE_WAIT, SHARE_OF_ANSWER, LONGEST_WAIT = 0.3, 1 / 8, 5.0
"""Seconds for which turns may wait for this process; those of a slow model a share of an answer's time."""
WEIGHT = 0.1
"""Of a turn's wait, in the mean."""
MEMORY_SECONDS = 2.0
"""Time after which waits say nothing about the next turn's."""


class ProcessLoad:
    """The workflow tasks that a process has open, and how long turns wait in its own queue."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # the SDK begins and ends tasks in threads of its own
        self._open = 0
        self._stepping = 0
        self._held_back: set[object] = set()
        self._wait = 0.0
        self._waited_at = -MEMORY_SECONDS

    @property
    def _computing(self) -> int:
        """Tasks that compute, or wait for it: those that wait for no local step, such as a model's answer."""
        return self._open - self._stepping

    @property
    def takes_workflows(self) -> bool:
        """Whether this process takes tasks of workflows that it doesn't have."""
        if self._computing >= MOST_COMPUTING:
            return False
        # one that takes none while nothing ends would keep out rollouts whose model is another one
        return self._open < LEAST_OPEN or not self._held_back

    def is_behind(self, answer_seconds: float) -> bool:
        """Whether turns of a model that takes `answer_seconds` for an answer wait for this process too long."""
        bearable = min(max(BEARABLE_WAIT, answer_seconds * SHARE_OF_ANSWER), LONGEST_WAIT)
        waits = time.monotonic() - self._waited_at < MEMORY_SECONDS and self._wait > bearable
        return waits or self._computing >= MOST_COMPUTING

    def hold_back(self, server: object, holds: bool) -> None:
        """Whether first turns wait for a server because this process is behind, or others have just begun."""
        if holds:
            self._held_back.add(server)
        else:
            self._held_back.discard(server)

    def begin_task(self) -> None:
        with self._lock:
            self._open += 1

    def end_task(self) -> None:
        with self._lock:
            self._open -= 1

    @contextmanager
    def stepping(self) -> Iterator[None]:
        """While a local step is at work."""
        self._stepping += 1
        try:
            yield
        finally:
            self._stepping -= 1

    def note_wait(self, seconds: float) -> None:
        """A turn has waited in this process's own queue for `seconds`."""
        self._wait += WEIGHT * (seconds - self._wait)
        self._waited_at = time.monotonic()
