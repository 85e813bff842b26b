"""The slots of a campaign, and the tasks that wait for the groups in them."""

import asyncio
from collections.abc import Coroutine
from typing import Any

from temporalio.exceptions import FailureError

Wait = asyncio.Task[None]


class Slots:
    """At most `size` groups run at a time: children of this run of the campaign, and adopted ones.

    One task waits for each child, and one for each batch of adopted groups. An error of the infrastructure fails
    the campaign after its groups have ended; any other is raised at once.
    """

    def __init__(self, size: int, adopted: tuple[int, ...]) -> None:
        self.size = size
        self._children: dict[int, Wait] = {}
        self._starting: list[int] = []
        self._followed: list[Wait] = []
        self._background: list[Wait] = []
        self._to_follow = list(adopted)
        self._error: BaseException | None = None
        self.adopted = list(adopted)

    @property
    def items(self) -> tuple[int, ...]:
        """The items whose groups are open."""
        return (*self.adopted, *self._children)

    @property
    def open(self) -> int:
        return len(self.adopted) + len(self._children)

    @property
    def free(self) -> bool:
        return self.open < self.size

    @property
    def started(self) -> bool:
        """Whether Temporal has started every requested child."""
        return not self._starting

    @property
    def idle(self) -> bool:
        """Whether no group is waited for."""
        return not self._children and not self._followed and not self._to_follow

    @property
    def broken(self) -> bool:
        return self._error is not None

    def start(self, item: int, wait: Coroutine[Any, Any, None]) -> None:
        self._starting.append(item)
        self._children[item] = asyncio.create_task(wait)

    def has_started(self, item: int) -> None:
        self._starting.remove(item)

    def adopt(self, item: int) -> None:
        """Move an item from the children to the adopted groups: the last act of its own task."""
        self.adopted.append(item)
        self._to_follow.append(item)

    def to_follow(self) -> list[list[int]]:
        """Adopted groups that no task waits for yet: a batch, or none."""
        items, self._to_follow = self._to_follow, []
        return [items] if items else []

    def follow(self, wait: Coroutine[Any, Any, None]) -> None:
        self._followed.append(asyncio.create_task(wait))

    def release(self, item: int) -> None:
        """Free the slot of an adopted group that has closed."""
        self.adopted.remove(item)

    def background(self, work: Coroutine[Any, Any, None]) -> Wait:
        """Start work that holds no slot; its error fails the campaign too."""
        self._background.append(asyncio.create_task(work))
        return self._background[-1]

    def changed(self) -> bool:
        """Whether there is something to follow or to reap."""
        return bool(self._to_follow) or any(task.done() for task in self._tasks)

    def reap(self) -> None:
        """Remove tasks that have ended, and note their errors."""
        ended = [task for task in self._tasks if task.done()]
        self._children = {item: task for item, task in self._children.items() if not task.done()}
        self._followed = [task for task in self._followed if not task.done()]
        self._background = [task for task in self._background if not task.done()]
        for task in ended:
            # `exception` raises for a cancelled task, which is none of the errors that count
            if not task.cancelled() and (error := task.exception()) is not None:
                self.fail(error)

    def fail(self, error: BaseException) -> None:
        """Keep the first error of the infrastructure, to be raised at the end; raise any other at once."""
        if not isinstance(error, FailureError):
            raise error
        self._error = self._error or error

    def require_whole(self) -> None:
        """Raise the error that failed the campaign, if any."""
        if self._error is not None:
            raise self._error

    async def cancel(self) -> None:
        """Cancel all tasks, with them the children, and wait for their end."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @property
    def _tasks(self) -> tuple[Wait, ...]:
        return (*self._children.values(), *self._followed, *self._background)
