"""Tasks that an environment drives itself: their settings and open workspaces, by its own ids.

The functions have the names that environments of the in-memory design import.
"""

import asyncio
import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from clotho.environment import AgentResult, ToolContext

IMAGES = frozenset({"docker_image", "modal_image", "daytona_image", "singularity_image"})

log = logging.getLogger("clotho.plugins.atropos")


@dataclass
class OpenTask:
    """A task from its first turn to its `cleanup`; its verification waits for `done`."""

    group: str
    result: "asyncio.Future[AgentResult]"
    cancel: Callable[[], None]
    """Ends its agent's part; callable from every thread."""
    context: ToolContext | None = None
    done: threading.Event = field(default_factory=threading.Event)

    def release(self) -> None:
        """Release its workspace, and end its agent if that is still at work."""
        self.done.set()
        if not self.result.done():
            self.cancel()


open_tasks: dict[str, OpenTask] = {}
_directories: dict[str, str] = {}
_said: set[str] = set()


def register_task_env_overrides(task_id: str, overrides: Mapping[str, Any]) -> None:
    """Have the task's commands start in the directory `cwd`; images have no effect, which is logged."""
    if "cwd" in overrides:
        _directories[task_id] = str(overrides["cwd"])
    for name in sorted(overrides.keys() - {"cwd"} - _said):
        _said.add(name)
        why = "sandboxes here have no images" if name in IMAGES else "it isn't known here"
        log.warning("tasks ask for %s %s: without effect, %s", name, overrides[name], why)


def clear_task_env_overrides(task_id: str) -> None:
    """Forget the task's settings."""
    _directories.pop(task_id, None)


def directory_of(task_id: str) -> str | None:
    """The directory in which the task's commands start, if one was set."""
    return _directories.get(task_id)


def cleanup_vm(task_id: str) -> None:
    """Release the task's workspace; an agent that is still at work ends."""
    if (task := open_tasks.get(task_id)) is not None:
        task.release()


def cleanup_all_environments() -> int:
    """Release all tasks' workspaces; returns how many there were."""
    tasks = list(open_tasks.values())
    for task in tasks:
        task.release()
    return len(tasks)


class ToolExecutor:
    """The executor that environments of the in-memory design shut down at their end."""

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Release all tasks' workspaces."""
        cleanup_all_environments()
