"""Task folders in the layout of Harbor and Terminal-Bench 2: `clotho run tasks:PATH …`."""

from collections.abc import Mapping
from typing import Literal

from clotho.config import variable
from clotho.environment import (
    AgentResult,
    Environment,
    EnvironmentConfig,
    Item,
    ItemSandbox,
    Reward,
    Solution,
    ToolContext,
)
from clotho.errors import InvalidInput, VerificationFailed, WorkspaceRefused
from clotho.plugins.task_folders.artifacts import Artifacts, read_artifacts
from clotho.plugins.task_folders.collection import read_tasks
from clotho.plugins.task_folders.control import CONTROLS, Control
from clotho.plugins.task_folders.folder import Task, read_task
from clotho.plugins.task_folders.grading import (
    OF_THE_VERIFIER,
    TESTS,
    Secrets,
    emptying_command,
    executable_command,
    make_ready,
    of_the_verifier,
    prepare,
    put_tests,
    run_tests,
    solution_command,
)
from clotho.plugins.task_folders.sandboxes import (
    Choices,
    container_sandbox,
    grading_sandbox,
    local_grading_sandbox,
    local_sandbox,
)
from clotho.templates import resolved

SECONDS_AROUND = 900.0
"""Seconds for making ready what the tests need, and for reading what they leave."""
MOST_MODES = 500
"""Files whose mode one command sets."""
MOST_FAULTS = 10
"""Most faults of artifacts in the reward's log."""


class TaskFoldersConfig(EnvironmentConfig):
    """`path`: where the tasks are, for each host. `names`: the only ones to roll out."""

    path: str
    names: tuple[str, ...] = ()
    skip_broken: bool = False
    """Leave tasks out that can't be rolled out, in place of refusing the folder."""
    variables: tuple[str, ...] = ()
    """Environment variables of the workers that tasks may read, as `${NAME}` in their task.toml."""
    default_network: Literal["none", "public"] = "none"
    """The network of tasks that say nothing of it."""
    verify_in: Literal["image", "container"] = "image"
    """The system that tests see: the image's own, or with all that the agent has changed of it."""
    host_programs: bool = False
    """Run tasks in local sandboxes over the hosts' own programs, whatever images they name."""
    enabled_toolsets: tuple[str, ...] | None = ("terminal", "file", "todo")
    max_agent_turns: int = 60
    verifier_cwd: str | None = "/work"
    trust_workspace: bool = True
    """The tests were written for a sandbox in which nothing keeps the workspace's settings from them."""


class TaskFolders(Environment):
    """Each folder is an item; its tests give the reward."""

    config_class = TaskFoldersConfig
    config: TaskFoldersConfig

    async def setup(self) -> None:
        found = read_tasks(self.config.path, variable, self.config.variables)
        if found.broken and not self.config.skip_broken:
            raise InvalidInput("\n".join((*found.broken, "set skip_broken to leave these out")))
        self.tasks = {task.name: task for task in found.tasks}
        if unknown := [name for name in self.config.names if name not in self.tasks]:
            raise InvalidInput(f"no task in {self.config.path} is called {', '.join(unknown)}")
        self.left = iter(self.config.names or self.tasks)

    async def get_next_item(self) -> Item | None:
        name = next(self.left, None)
        return None if name is None else {"id": name, "digest": self.tasks[name].digest}

    async def next_item(self) -> Item | None:
        """A dataset's row names its task by `id`; raises InvalidInput where there is no such task."""
        item = await super().next_item()
        if item is None or "digest" in item:
            return item
        if (task := self.tasks.get(str(item.get("id")))) is None:
            raise InvalidInput(f"no task in {self.config.path} is called {item.get('id')!r}, as a row's id")
        return {**item, "digest": task.digest}

    def same_item(self, recorded: Item, item: Item) -> bool:
        """Replay grades by tests that were mended since, too."""
        return recorded.get("id") == item["id"]

    def format_prompt(self, item: Item) -> str:
        return self.task(item).instruction

    def sandbox(self, item: Item) -> ItemSandbox:
        task = self.task(item)
        return local_sandbox(task) if self.config.host_programs else container_sandbox(task, self.choices)

    def grading_sandbox(self, item: Item) -> ItemSandbox | None:
        task = self.task(item)
        if self.config.host_programs:
            return local_grading_sandbox(task)
        return grading_sandbox(task, self.choices)

    @property
    def choices(self) -> Choices:
        return Choices(self.config.default_network, self.config.verify_in)

    def time_limit(self, item: Item) -> float | None:
        return self.task(item).file.agent.timeout_sec

    def workspace_files(self, item: Item) -> Mapping[str, str | bytes]:
        folders = {f"/logs/{name}/.keep": b"" for name in ("agent", "verifier", "artifacts")}
        return {**folders, **self.task(item).workdir_files.content}

    def verification_seconds(self, item: Item) -> float | None:
        """The time of the task's own tests and collect commands, and what is done around them."""
        verifier = self.task(item).file.verifier
        collecting = sum(each.timeout_sec for each in verifier.collect)
        return verifier.timeout_sec + collecting + SECONDS_AROUND

    def solution(self, item: Item) -> Solution:
        task = self.task(item)
        if (files := task.solution) is None:
            raise InvalidInput(f"task {task.name} has no solution/solve.sh")
        return Solution(
            command=solution_command(task, files, task.file.solution.env),
            files={f"/solution/{name}": content for name, content in files.content.items()},
            seconds=task.file.agent.timeout_sec,
        )

    def hidden_files(self, item: Item) -> Mapping[str, bytes]:
        task = self.task(item)
        if task.file.verifier.separate or self._keeps_services(task):
            return {}
        return {f"{TESTS}/{name}": content for name, content in task.tests.content.items()}

    def compute_reward(self, item: Item, result: AgentResult, ctx: ToolContext) -> Reward:
        """Raises VerificationFailed where the tests don't end in time, or leave no reward.

        Raises WorkspaceRefused where what the agent left can't be cleared away for them.
        """
        task = self.task(item)
        artifacts = read_artifacts(ctx, task.file.verifier.collect, task.file.artifacts)
        faults = artifacts.faults[:MOST_FAULTS]
        tests = self._graded(ctx, task, artifacts)
        variables, secrets = self._variables(task)
        try:
            graded = run_tests(tests, task, variables, secrets)
        except VerificationFailed as failed:
            raise VerificationFailed("\n".join((str(failed), *faults))) from None
        kept = {each.name: each.content for each in artifacts.files}
        log = "\n".join((*faults, graded.log))
        return Reward(score=graded.score, breakdown=graded.rewards, log=log, artifacts=kept)

    def control(self, item: Item, ctx: ToolContext) -> Control:
        """How the same tests end in the task's own image, where no agent has been; known for an hour.

        Where they end with a valid reward there and failed over the agent's files again, the agent made them fail.
        """
        task = self.task(item)

        def run() -> None:
            fresh = ctx.grading
            for path, content in self.workspace_files(item).items():
                fresh.write_bytes(path, content if isinstance(content, bytes) else content.encode())
            self._put_tests(fresh, task)
            run_tests(fresh, task, *self._variables(task))

        return CONTROLS.of((task.digest, self.config.host_programs), run)

    def blames_agent(self, item: Item, ctx: ToolContext) -> bool:
        return self.control(item, ctx).blames_agent

    def _keeps_services(self, task: Task) -> bool:
        """Whether the agent's processes stay for the tests: as the task says, else the run."""
        said = task.file.metadata.clotho.keep_services
        return self.config.keep_services if said is None else said

    def _variables(self, task: Task) -> tuple[dict[str, str], Secrets]:
        """The verifier's variables, and which of their values no log shows."""
        templates = task.file.verifier.env
        variables = resolved(templates, "verifier.env", variable, self.config.variables)
        return variables, Secrets.among(templates, variables)

    def _graded(self, ctx: ToolContext, task: Task, artifacts: Artifacts) -> ToolContext:
        """The sandbox of the tests, made ready for them."""
        if not task.file.verifier.separate:
            prepare(ctx, task, placed=not self._keeps_services(task))
            return ctx
        if not artifacts.whole:
            raise WorkspaceRefused("; ".join(artifacts.faults[:MOST_FAULTS]))
        fresh = ctx.grading
        directory = make_ready(fresh, "pwd").removesuffix("\n")
        kept = [file for file in artifacts.files if not of_the_verifier(file.path, directory)]
        for file in kept:
            fresh.write_bytes(file.path, file.content)
        # Afterwards: a link of the image may lead a kept file there.
        self._put_tests(fresh, task, tuple(file.path for file in kept if file.executable))
        return fresh

    def _put_tests(self, fresh: ToolContext, task: Task, executable: tuple[str, ...] = ()) -> None:
        make_ready(fresh, emptying_command(("/logs/verifier",) if task.bundles_tests else OF_THE_VERIFIER))
        if not task.bundles_tests:
            put_tests(fresh, task)
            executable += tuple(f"{TESTS}/{name}" for name in sorted({*task.tests.executable, "test.sh"}))
        for at in range(0, len(executable), MOST_MODES):
            make_ready(fresh, executable_command(executable[at : at + MOST_MODES]))

    def task(self, item: Item) -> Task:
        """Raises InvalidInput for a task that isn't what it was when the run began.

        One that was mended since `setup` is read again for the runs that have begun since.
        """
        name = str(item["id"])
        task = self.tasks.get(name)
        if task is not None and task.digest != item["digest"]:
            task = self.tasks[name] = read_task(task.path, variable, self.config.variables)
        if task is None or task.digest != item["digest"]:
            raise InvalidInput(f"task {name} in {self.config.path} has changed since the run began")
        return task
