"""One model server as a process knows it: its width, and what all processes see of it."""

import asyncio
import time
from dataclasses import dataclass, field

from clotho.models.endpoint import Endpoint
from clotho.models.gate import Gate
from clotho.models.pace_pages import PacePages, ServerPage
from clotho.models.server_load import ServerLoad
from clotho.models.speed import SpeedMeter, level
from clotho.models.width import Signals, Width, shares

ROTATION_SECONDS = 5


@dataclass
class PacedServer:
    server: Endpoint
    """As the first run asked for it: others may ask the same server in another mode."""
    pages: PacePages
    gate: Gate
    width: Width = field(default_factory=lambda: Width(changed_at=time.time()))
    meter: SpeedMeter = field(default_factory=SpeedMeter)
    load: ServerLoad = field(default_factory=ServerLoad)
    load_due: float = 0.0
    reading: asyncio.Task[None] | None = None
    looking: asyncio.Lock = field(default_factory=asyncio.Lock)
    looked: float | None = None
    alone: bool = False
    """Whether the store couldn't be asked at the last look."""

    def is_busy(self, now: float) -> bool:
        """Whether its width matters now to any process."""
        waiting = self.gate.waiting or any(page.waiting for page in self.pages.alive(now).values())
        return bool(waiting or self.meter.refused or self.gate.is_down(now))

    def page(self, now: float) -> ServerPage:
        """This process's page."""
        return ServerPage(
            width=self.width,
            in_use=self.gate.asking,
            waiting=self.gate.waiting + self.gate.rated,
            speed=self.meter.speed,
            down=not self.gate.takes_new(now),
        )

    def signals(self, process: str, now: float) -> Signals:
        """Sum up what all processes have seen since the last look."""
        pages = {process: self.page(now), **self.pages.alive(now)}
        granted, changes = self.granted(process, now), self.width.changes
        measured = [page.speed for page in pages.values() if page.speed.changes == changes]
        in_use = sum(page.in_use for page in pages.values())
        waiting = sum(page.waiting for page in pages.values())
        return Signals(
            in_use=in_use,
            waiting=waiting,
            promised=sum(max(page.in_use, granted[name]) for name, page in pages.items()),
            joint=all(page.speed.changes == changes for page in pages.values() if page.in_use),
            refused=sum(speed.refused for speed in measured),
            # while requests wait, all permits are in use, but for moments in which `in_use` may have been counted
            level=level(measured, max(1, min(self.width.width, in_use + waiting))),
            load=self.load,
        )

    def granted(self, process: str, now: float) -> dict[str, int]:
        """Each process's share of the width; this process is `process`."""
        demands = {name: page.in_use + page.waiting for name, page in self.pages.alive(now).items()}
        demands[process] = self.gate.in_use + self.gate.waiting
        return shares(self.width.width, demands, int(time.time()) // ROTATION_SECONDS)
