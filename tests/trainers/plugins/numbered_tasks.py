"""A package of environments, as verifiers finds it by its name: tasks by number, rolled out by Clotho."""

from collections.abc import Iterator

import verifiers.v1 as vf

from clotho.plugins.trainers.verifiers import ClothoEnv, ItemData, ItemTask

__all__ = ["ClothoEnv", "NumberedTasks"]


class NumberedTasks(vf.Taskset[ItemTask, vf.TasksetConfig]):  # type: ignore[misc]
    def load(self) -> Iterator[ItemTask]:
        for number in range(13):
            yield ItemTask(ItemData(item={"number": number}), self.config.task)
