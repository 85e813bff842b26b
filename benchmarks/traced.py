"""Files of the product that a turn and a command enter, from the beginning of their step to its end.

    python -m benchmarks.traced

One rollout with an instant model runs in this process, beside nothing else: what its steps start in other tasks and
threads counts too. A file counts if most steps of its kind enter it, since heartbeats come to few of them.
"""

import asyncio
import functools
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from rich.console import Console
from rich.table import Table

from activities.llm import Model
from activities.tools import Tools
from benchmarks.features import CHANGES_THE_WORKSPACE
from benchmarks.loop import LOOP, Bench
from benchmarks.shape import product
from clotho.config import settings_class
from clotho.embedded.temporal_binary import temporal_binary
from clotho.embedded.temporal_server import TemporalServer
from clotho.testing.script import Script, terminal_turns
from tests.cluster import cluster_in
from worker import serve

ROOT = Path(__file__).parent.parent
ROLES = ("workflows", "llm", "tools")
TURNS = 30
STEPS = (("a turn", Model, "sample_turn"), ("a command with its checkpoint", Tools, "call_tool"))

Step = Callable[[Any, Any], Awaitable[Any]]


class Trace:
    """Records the files and functions that steps enter; one step is under way at a time."""

    def __init__(self) -> None:
        self._files = {str(source.path): str(source.path.relative_to(ROOT)) for source in product()}
        self._under_way: set[tuple[str, str]] | None = None
        self.steps: dict[str, list[set[tuple[str, str]]]] = {}
        """Of each kind, the files and functions that each step entered."""

    def __call__(self, frame: FrameType, event: str, _: object) -> None:
        if event == "call" and self._under_way is not None:
            file = self._files.get(frame.f_code.co_filename)
            if file is not None:
                self._under_way.add((file, frame.f_code.co_qualname))

    @contextmanager
    def step(self, kind: str) -> Iterator[None]:
        entered = self._under_way = set()
        try:
            yield
        finally:
            self._under_way = None
            self.steps.setdefault(kind, []).append(entered)

    def traced(self, kind: str, activity: Step) -> Step:
        @functools.wraps(activity)
        async def run(self_: object, request: object) -> object:
            with self.step(kind):
                return await activity(self_, request)

        return run

    def usual(self, kind: str) -> set[tuple[str, str]]:
        steps = self.steps[kind]
        times = Counter(each for step in steps for each in step)
        return {each for each, count in times.items() if count > len(steps) / 2}


async def trace_rollout(trace: Trace) -> None:
    with tempfile.TemporaryDirectory(prefix="clotho-bench-") as name:
        folder = Path(name)
        await asyncio.to_thread(folder.chmod, 0o711)
        binary = await temporal_binary()
        server = TemporalServer(binary, folder / "temporal.log", ui_port=None, db=folder / "temporal.db")
        async with server, cluster_in(server, folder / "cluster", "default") as cluster:
            settings = settings_class()(
                store=cluster.store_location,
                host=cluster.host_name,
                temporal={"address": cluster.address},
                sandbox={"root": cluster.sandbox_root},
            )
            worker = asyncio.create_task(serve(ROLES, settings))
            bench = Bench(cluster, folder)
            script = Script(conversations=(terminal_turns(TURNS, CHANGES_THE_WORKSPACE),))
            async with bench.model(script) as url:
                await bench.rollouts(url, environment=LOOP)
            worker.cancel()
            await asyncio.wait((worker,))


def main() -> None:
    trace = Trace()
    for kind, owner, name in STEPS:
        setattr(owner, name, trace.traced(kind, getattr(owner, name)))
    threading.setprofile(trace)
    sys.setprofile(trace)
    asyncio.run(trace_rollout(trace))
    sys.setprofile(None)
    for kind in trace.steps:
        entered = trace.usual(kind)
        files = Counter(file for file, _ in entered)
        table = Table(
            f"{kind}: {len(files)} files, of {len(trace.steps[kind])} steps", f"{len(entered)} functions"
        )
        for file, functions in sorted(files.items()):
            table.add_row(file, f"{functions}")
        Console().print(table)


if __name__ == "__main__":
    main()
