"""`clotho tasks check`: whether every task can be solved, and isn't solved by doing nothing."""

import asyncio
import json
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import typer
from pydantic import JsonValue
from rich.console import Console
from rich.table import Table
from temporalio.client import WorkflowFailureError

from clotho.cli.assignments import parse_overrides
from clotho.cli.interruption import Interruption
from clotho.cli.show import show
from clotho.cli.terminal import amount, make_console, one_line, sanitized_text
from clotho.cli.try_rollout import say_troubles
from clotho.cli.waiting import until_served
from clotho.config import Settings, load_settings, variable
from clotho.embedded.services import EphemeralServices, ephemeral_services
from clotho.environment.handles import EnvironmentHandle
from clotho.environment.instances import EnvironmentProcesses
from clotho.environment.named import named_environment
from clotho.errors import ClothoError, InvalidInput, Unavailable
from clotho.identifiers.ids import group_id, rollout_id
from clotho.identifiers.keys import scored_key
from clotho.plugins.containers.config import DockerConfig
from clotho.plugins.containers.engine import Engine
from clotho.plugins.containers.opening import engine_address
from clotho.plugins.task_folders.collection import configured_network_notice, read_tasks
from clotho.plugins.task_folders.sources import ENVIRONMENT
from clotho.rollouts.agent import SPOILERS, Agent, AgentKind
from clotho.rollouts.group import GroupEntry, RepairBounds
from clotho.rollouts.item import Item
from clotho.rollouts.run import RunManifest
from clotho.runs.campaigns import CampaignHandle, start_campaign
from clotho.runs.request import RunRequest, run_manifest
from clotho.temporal.failures import failure_of
from clotho.temporal.states import describe

AGENTS = {AgentKind.ORACLE: 1.0, AgentKind.NOP: 0.0}
"""The reward that each agent is expected to earn."""
VOIDS = "a policy that leaves this voids its rollout"
ALTERNATIVES: Mapping[str, JsonValue] = {"verify_in": "container", "keep_services": True}
"""Settings with which a task is tried again whose oracle earns 0: tests may need what the solution left there."""
NO_HOST = re.compile(
    r"could not resolve host|temporary failure (in name resolution|resolving)|network is unreachable|"
    r"name or service not known|failed to establish a new connection",
    re.IGNORECASE,
)
"""What programs say that have no network."""
UNREACHED = (
    "its tests couldn't reach a host: tasks that say nothing have no network without default_network=public"
)
MOST_TASKS = 100_000
NEVER = 1 << 30
# a rollout that fails is a finding, which a repair would hide
NO_REPAIRS = RepairBounds(per_group=0, per_run=0)
LONGEST_WIDTH = 200

app = typer.Typer(help="Check task folders.", no_args_is_help=True)


class TasksWrong(ClothoError):
    """Some tasks are not as they should be; the table above says which."""


@dataclass(frozen=True)
class Checked:
    """The result of one agent at one task."""

    task: str
    agent: AgentKind
    score: float | None
    reason: str
    log: Path

    @property
    def right(self) -> bool:
        """Whether the reward is the one that is expected; of a spoiled answer, any."""
        return self.score is not None if self.agent in SPOILERS else self.score == AGENTS[self.agent]


@app.callback()
def tasks() -> None:
    """Task folders."""


@app.command("check")
def check(
    source: Annotated[
        str,
        typer.Argument(
            help="A folder of tasks, tasks:SOURCE, or an environment whose items have solutions.",
            metavar="TASKS",
        ),
    ],
    config: Annotated[
        list[str] | None,
        typer.Option("--set", help="A field of the environment's configuration.", metavar="NAME=JSON"),
    ] = None,
    at_once: Annotated[int, typer.Option(help="How many tasks run at once.", min=1, metavar="N")] = 8,
    logs: Annotated[
        Path | None,
        typer.Option(help="Folder of the logs.", metavar="FOLDER", show_default=".clotho/tasks"),
    ] = None,
) -> None:
    """Run the oracle, which executes each task's solution, and nop, which does nothing, on every task.

    Prints the tasks where the oracle's reward isn't 1 or nop's isn't 0, the folders that can't be read, and the
    paths of the logs. Exit status 1 if there are any. An environment that is no folder of tasks is also given
    solutions whose files are empty, huge, or FIFOs: its verifier must give a reward, whichever it is.
    """
    settings, console = load_settings(), make_console()
    environment, overrides, broken = _source(source, parse_overrides(config or []))
    if (notice := _notice(source, overrides)) is not None:
        one_line(console, notice)
    for sentence in broken:
        console.print(sanitized_text(sentence, "red"), soft_wrap=True)
    folder = logs or settings.folder / "tasks"

    async def interruptible() -> list[Checked]:
        manifests = {
            agent: run_manifest(
                environment,
                f"check-{agent}",
                str(agent),
                agent=Agent(kind=agent),
                overrides=overrides,
                group_size=1,
                settings=settings.run,
            )
            for agent in (*AGENTS, *(SPOILERS if environment == source else ()))
        }
        return await Interruption().ends(_checked(settings, console, manifests, at_once, folder))

    checked = asyncio.run(interruptible())
    _print(console, checked)
    wrong = {each.task for each in checked if not each.right}
    total = len({each.task for each in checked})
    right = f"{total - len(wrong)} of {amount(total + len(broken), 'task')}"
    one_line(console, f"right: {right}; logs are in {folder}")
    if wrong or broken:
        raise TasksWrong(
            f"{amount(len(wrong), 'wrong task')}, {amount(len(broken), 'folder')} that can't be read"
        )


def _source(
    source: str, overrides: Mapping[str, JsonValue]
) -> tuple[str, Mapping[str, JsonValue], tuple[str, ...]]:
    """The environment, its configuration, and what is wrong with folders that can't be read."""
    environment, folder = named_environment(f"tasks:{source}" if Path(source).is_dir() else source)
    if not folder:
        return source, overrides, ()
    readable = overrides.get("variables")
    found = read_tasks(
        str(folder["path"]), variable, tuple(map(str, readable)) if isinstance(readable, list) else ()
    )
    return environment, {**folder, "skip_broken": True, **overrides}, found.broken


def _notice(source: str, overrides: Mapping[str, JsonValue]) -> str | None:
    """Say how many tasks name no network, and so have none here; other readers of theirs give them one."""
    environment, folder = named_environment(f"tasks:{source}" if Path(source).is_dir() else source)
    return configured_network_notice(environment, {**folder, **overrides}) if folder else None


async def _checked(
    settings: Settings,
    console: Console,
    manifests: Mapping[AgentKind, RunManifest],
    at_once: int,
    folder: Path,
) -> list[Checked]:
    images = Images(settings)
    manifest = manifests[AgentKind.NOP]
    async with EnvironmentProcesses() as environments, environments.enumeration(manifest) as environment:
        drawn = await environment.next_items(MOST_TASKS)
        faults = [await images.fault_of(environment, item) for item in drawn]
    items = tuple(item for item, fault in zip(drawn, faults, strict=True) if fault is None)
    without_image = [
        _without_image(str(item.get("id", number)), agent, fault, folder)
        for number, (item, fault) in enumerate(zip(drawn, faults, strict=True))
        for agent in manifests
        if fault is not None
    ]
    if not items:
        return without_image
    async with ephemeral_services(settings, with_model=False) as services:

        async def run() -> list[Checked]:
            await until_served(services.client, services.worker)
            handles = [await _start(services, each, items, at_once) for each in manifests.values()]
            oracle = manifests[AgentKind.ORACLE].run
            troubles = asyncio.create_task(say_troubles(console, services.client, oracle))
            try:
                for handle in handles:
                    with suppress(WorkflowFailureError):  # told of each task below
                        await handle.result()
            finally:
                troubles.cancel()
            outcomes = [
                await _outcome(services, agent, each.run, number, item, folder)
                for number, item in enumerate(items)
                for agent, each in manifests.items()
            ]
            unsolved = [
                item
                for item, each in zip(items, outcomes[:: len(manifests)], strict=True)
                if each.agent is AgentKind.ORACLE and each.score == 0
            ]
            named = await _alternatives(services, manifests[AgentKind.ORACLE], unsolved, at_once, folder)
            return [
                replace(each, reason=named[each.task])
                if each.agent is AgentKind.ORACLE and each.task in named
                else each
                for each in outcomes
            ]

        return [*without_image, *await services.during(run())]


async def _alternatives(
    services: EphemeralServices, oracle: RunManifest, unsolved: list[Item], at_once: int, folder: Path
) -> dict[str, str]:
    """The setting with which each task's oracle earns 1, by task."""
    named: dict[str, str] = {}
    for number, (name, value) in enumerate(ALTERNATIVES.items()):
        config = oracle.environment_config
        left = [item for item in unsolved if str(item.get("id")) not in named]
        if not left or name not in config or config[name] == value:
            continue
        again = oracle.model_copy(
            update={"run": f"{oracle.run}-{number}", "environment_config": {**config, name: value}}
        )
        handle = await _start(services, again, tuple(left), at_once)
        with suppress(WorkflowFailureError):
            await handle.result()
        for place, item in enumerate(left):
            done = await _outcome(services, AgentKind.ORACLE, again.run, place, item, folder / "tried-again")
            if done.right:
                named[done.task] = f"is 1 with --set {name}={json.dumps(value)}"
                if oracle.environment == ENVIRONMENT:
                    named[done.task] += f", or {name} = {json.dumps(value)} in [metadata.clotho]"
    return named


class Images:
    """The images of items' sandboxes, pulled before anything begins: rollouts would wait out an outage."""

    def __init__(self, settings: Settings) -> None:
        self._engine = Engine(engine_address(settings))
        self._faults: dict[str, str | None] = {}

    async def fault_of(self, environment: EnvironmentHandle, item: Item) -> str | None:
        """Why an image of the item's sandboxes can't be had now; None where all can."""
        for asked in (await environment.sandbox(item), await environment.grading_sandbox(item)):
            config = None if asked is None else asked.backend
            if isinstance(config, DockerConfig) and (fault := await self._fault(config)) is not None:
                return fault
        return None

    async def _fault(self, config: DockerConfig) -> str | None:
        if (image := config.image) is None:
            return None
        if image not in self._faults:
            self._faults[image] = None
            try:
                await asyncio.to_thread(self._engine.image, image, config.pull, config.platform)
            except Unavailable as error:
                self._faults[image] = str(error)
            except InvalidInput:  # told by each rollout
                pass
        return self._faults[image]


def _without_image(name: str, agent: AgentKind, fault: str, folder: Path) -> Checked:
    log = _log(folder, name, agent)
    log.write_text(f"{fault}\n")
    return Checked(name, agent, None, fault.partition("\n")[0], log)


def _log(folder: Path, task: str, agent: AgentKind) -> Path:
    log = folder / re.sub(r"[^\w.-]+", "_", task) / f"{agent}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    return log


async def _start(
    services: EphemeralServices, manifest: RunManifest, items: tuple[Item, ...], at_once: int
) -> CampaignHandle:
    order = RunRequest(
        manifest=manifest,
        endpoint=None,
        groups=len(items),
        max_open_groups=at_once,
        items=items,
        repairs=NO_REPAIRS,
        stop_after_failures=NEVER,
    )
    return await start_campaign(services.client, services.journal, order)


async def _outcome(
    services: EphemeralServices, agent: AgentKind, run: str, number: int, item: Item, folder: Path
) -> Checked:
    group = group_id(run, number)
    name = str(item.get("id", number))
    log = _log(folder, name, agent)
    entry = await services.journal.read(scored_key(group), GroupEntry)
    score, reason = (entry.siblings[0].score, "") if entry is not None else (None, "no reward")
    rollout = rollout_id(group, 0)
    with log.open("w") as file:
        console = Console(file=file, width=LONGEST_WIDTH)
        with suppress(ClothoError):  # a rollout that never began has nothing to show
            await show(console, services.journal, rollout)
        # the rollout's failure says more than its group's, which only names it
        for workflow in (rollout, group):
            described = await describe(services.client, workflow)
            failure = await failure_of(services.client, described) if described is not None else None
            if failure is not None:
                reason = f"{failure.kind}: {failure.message}"
                if agent in SPOILERS:
                    reason = f"{VOIDS}: {failure.kind}: {failure.last_line}"
                console.print(sanitized_text(reason))
                break
    expected = AGENTS.get(agent, score)
    if score is not None and score != expected and NO_HOST.search(log.read_text(errors="replace")):
        reason = f"should be {expected:g}: {UNREACHED}"
    return Checked(name, agent, score, reason.partition("\n")[0], log)


def _print(console: Console, checked: list[Checked]) -> None:
    wrong = [each for each in checked if not each.right]
    if not wrong:
        return
    table = Table("task", "agent", "reward", "why", "log", box=None)
    for each in wrong:
        score = "none" if each.score is None else f"{each.score:g}"
        why = each.reason or f"should be {AGENTS[each.agent]:g}"
        table.add_row(*(sanitized_text(cell) for cell in (each.task, each.agent, score, why, str(each.log))))
    console.print(table)
