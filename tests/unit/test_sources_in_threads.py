"""The sources of environments, read by several threads of a worker at once."""

import gc
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from clotho.environment.code import source_files

PAUSE_SECONDS = 0.05
LONG = "\n".join(f"x{number} = [1, (2, {{'a': f({number})}})]" for number in range(3_000))


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "long_tasks.py").write_text(LONG)
    monkeypatch.syspath_prepend(tmp_path)
    return "long_tasks"


class Interruptions:
    """Lets another thread read whenever the garbage collector runs in the thread that entered it."""

    def __init__(self) -> None:
        self.over = False
        self.turn, self.done = threading.Event(), threading.Event()

    def __enter__(self) -> None:
        self._thread = threading.get_ident()
        gc.callbacks.append(self._collecting)

    def __exit__(self, *_: object) -> None:
        gc.callbacks.remove(self._collecting)
        self.over = True
        self.turn.set()

    def _collecting(self, phase: str, info: dict[str, int]) -> None:
        if phase == "start" and threading.get_ident() == self._thread:
            self.done.clear()
            self.turn.set()
            self.done.wait(PAUSE_SECONDS)

    def turns(self) -> Iterator[None]:
        while self.turn.wait() and not self.over:
            self.turn.clear()
            yield
            self.done.set()


def test_sources_are_read_by_several_threads_at_once(module: str) -> None:
    interruptions = Interruptions()

    def read_when_interrupted(depth: int) -> None:
        if depth:
            read_when_interrupted(depth - 1)
            return
        for _ in interruptions.turns():
            source_files(module)

    with ThreadPoolExecutor(1) as pool:
        other = pool.submit(read_when_interrupted, 20)
        with interruptions:
            assert [file.stem for file in source_files(module)] == [module]
        other.result()
