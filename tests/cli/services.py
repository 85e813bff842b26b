"""`clotho dev` on ports of its own."""

from pathlib import Path

from clotho.processes.ports import free_port
from tests.cli.command import CLOTHO, Terminal, descendants
from tests.support import eventually


class Dev:
    """`clotho dev` on ports and in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.store = folder / "store"
        self.temporal_port, self.model_port, self.ui_port = (free_port() for _ in range(3))
        ports = (
            "--temporal-port",
            self.temporal_port,
            "--ui-port",
            self.ui_port,
            "--model-port",
            self.model_port,
        )
        self.terminal = Terminal(CLOTHO, "dev", *map(str, ports), "--store", self.store)

    async def ready(self) -> set[int]:
        """Temporal, the model, the workers' parent and two workers, once it takes runs."""
        await self.terminal.until("Ctrl-C stops everything")

        async def settled() -> set[int] | None:
            """Without what the workers start for a moment."""
            started = descendants(self.terminal.pid)
            return started if len(started) == 5 else None

        return await eventually(settled, "five processes")
