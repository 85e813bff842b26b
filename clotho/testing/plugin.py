"""A pytest plugin: `pytest_plugins = ["clotho.testing.plugin"]` in conftest.py gives the fixture `sandboxed`."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from clotho.rollouts.item import Item
from clotho.testing.task import EnvironmentLike, SandboxedTask, sandboxed_context


@pytest.fixture
def sandboxed() -> Iterator[Callable[..., SandboxedTask]]:
    """`sandboxed(MyEnvironment, item)`: a task in a sandbox that is destroyed when the test ends."""
    with ExitStack() as stack:

        def make(environment: EnvironmentLike, item: Item | int = 0) -> SandboxedTask:
            return stack.enter_context(sandboxed_context(environment, item))

        yield make
