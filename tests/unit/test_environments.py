"""An environment's dataset, drawn where its author's code can hold nothing up."""

import asyncio
import threading

import pytest

from clotho.environment import Environment, EnvironmentConfig, Item
from clotho.environment.in_process import InProcessEnvironment, SharedProcess
from clotho.environment.loading import known_environments, load_environment
from clotho.errors import EnvironmentFailed
from tests.support import PATIENCE_SECONDS


class Dataset(Environment):
    """Of whatever it is given: an exception is raised in its turn."""

    def __init__(self, *items: object) -> None:
        super().__init__(EnvironmentConfig())
        self._items = iter(items)

    async def get_next_item(self) -> Item | None:
        item = next(self._items, None)
        if isinstance(item, Exception):
            raise item
        return item  # type: ignore[return-value]  # What isn't an item is the test's point.


async def test_items_are_drawn_until_the_dataset_ends() -> None:
    dataset = InProcessEnvironment(Dataset({"n": 0}, {"n": 1}, {"n": 2}), SharedProcess())
    assert await dataset.next_items(2) == ({"n": 0}, {"n": 1})
    assert await dataset.next_items(2) == ({"n": 2},)


@pytest.mark.parametrize(
    ("item", "said"),
    [
        (ValueError("no such dataset"), "no such dataset"),
        ("text", "an item is a JSON object"),
        ({"image": object()}, "isn't JSON"),
    ],
)
async def test_a_dataset_that_fails_is_the_authors_failure(item: object, said: str) -> None:
    with pytest.raises(EnvironmentFailed, match=said):
        await InProcessEnvironment(Dataset(item), SharedProcess()).next_items(1)


class Blocking(Environment):
    """Its dataset takes its time without letting anybody else have a turn."""

    def __init__(self) -> None:
        super().__init__(EnvironmentConfig())
        self.go = threading.Event()

    async def get_next_item(self) -> None:
        assert self.go.wait(PATIENCE_SECONDS)


async def test_a_dataset_that_blocks_holds_nobody_up() -> None:
    environment = Blocking()
    drawing = asyncio.create_task(InProcessEnvironment(environment, SharedProcess()).next_items(1))
    await asyncio.sleep(0)
    environment.go.set()
    assert await drawing == ()


def test_every_environment_that_is_named_to_users_can_be_given() -> None:
    names = known_environments()
    assert {"file_tasks", "word_count"} <= set(names)
    assert [load_environment(name).__module__ for name in names] == [f"environments.{name}" for name in names]
    assert "_marked_file_tasks" not in names
