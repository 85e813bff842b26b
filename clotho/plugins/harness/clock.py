"""The time in which a harness works."""

import time
from dataclasses import dataclass, field


@dataclass
class Clock:
    """The time that a harness has worked, without that in which it waited for the model."""

    begun: float = field(default_factory=time.monotonic)
    waited: float = 0.0
    _waits: int = 0
    _since: float = 0.0

    def go_on_from(self, worked: float) -> None:
        """Count from `worked` seconds on, which earlier processes have seen."""
        self.begun, self.waited = time.monotonic() - worked, 0.0

    def begin_wait(self) -> None:
        self._waits += 1
        if self._waits == 1:
            self._since = time.monotonic()

    def end_wait(self) -> None:
        self._waits -= 1
        if self._waits == 0:
            self.waited += time.monotonic() - self._since

    @property
    def worked(self) -> float:
        waiting = time.monotonic() - self._since if self._waits else 0.0
        return time.monotonic() - self.begun - self.waited - waiting
