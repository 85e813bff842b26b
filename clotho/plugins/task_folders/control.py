"""Controls: whether a task's tests end with a valid reward where no agent has been.

Tests that fail twice over an agent's files may fail because of the task, the host, or the agent's program. A
control runs them once more, in the task's untouched image, and so tells which. For an hour, all rollouts of the
task share its answer.
"""

import threading
import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass

from clotho.errors import VerificationFailed

KEPT_SECONDS = 3_600.0
MOST_KEPT = 1_000


@dataclass(frozen=True)
class Control:
    """`failure` is why the tests gave no valid reward; None where they gave one."""

    failure: str | None

    @property
    def blames_agent(self) -> bool:
        return self.failure is None


class Controls:
    """The controls of this process."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._known: dict[Hashable, tuple[float, Control]] = {}
        self._running: dict[Hashable, threading.Lock] = {}
        self._changing = threading.Lock()

    def of(self, key: Hashable, run: Callable[[], None]) -> Control:
        """Return the control of `key`; where none is known, `run` makes it, in one thread at a time.

        `run` raises VerificationFailed where the tests fail. Its other errors say nothing of them, and are raised.
        """
        with self._changing:
            running = self._running.setdefault(key, threading.Lock())
        with running:
            found = self._known.get(key)
            if found is not None and self._clock() - found[0] < KEPT_SECONDS:
                return found[1]
            try:
                run()
            except VerificationFailed as failed:
                control = Control(str(failed))
            else:
                control = Control(None)
            with self._changing:
                self._known[key] = self._clock(), control
                while len(self._known) > MOST_KEPT:
                    del self._running[(oldest := next(iter(self._known)))], self._known[oldest]
            return control


CONTROLS = Controls()
