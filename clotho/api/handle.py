"""A run of the store, as scripts and notebooks see it: its figures, groups and rollouts, and operations on it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import JsonValue
from temporalio.client import Client

from clotho.api import frames
from clotho.api.background import background
from clotho.api.session import Session, sessions
from clotho.cli.assignments import checked_settings
from clotho.errors import InvalidInput
from clotho.evaluation.comparison import Comparison, compared
from clotho.evaluation.figures import DIFFERENCE
from clotho.evaluation.results import read_results
from clotho.evaluation.statistics import pass_at
from clotho.evaluation.summary import RunSummary, read_summary
from clotho.journal import Journal
from clotho.models.messages import ChatMessage
from clotho.rollouts.group import GroupEntry
from clotho.rollouts.rollout import RolloutSummary
from clotho.rollouts.transcript import Transcript, read_transcript
from clotho.run_settings import RunSettings
from clotho.runs.deletion import delete_run
from clotho.runs.disturbances import Disturbance, disturbances_of
from clotho.runs.groups import scored_groups
from clotho.runs.operations import Operations
from clotho.runs.targets import Target

if TYPE_CHECKING:
    import pandas
    import polars

Result = TypeVar("Result")


@dataclass(frozen=True)
class Rollout:
    """A scored rollout. What it said and did is read from the store when it is asked for."""

    id: str
    item: dict[str, JsonValue]
    reward: float
    outcome: str
    """Why it ended: the agent's own end, or a limit."""
    disturbances: tuple[str, ...]
    """What happened to it on its way, such as a lost sandbox or a repair."""
    summary: RolloutSummary = field(repr=False)
    session: Session = field(repr=False)

    @cached_property
    def transcript(self) -> Transcript:
        return background().call(read_transcript(self.session.journal, self.id, self.summary.turns))

    @property
    def messages(self) -> list[dict[str, Any]]:
        """The conversation in the OpenAI format, tool results included."""
        return [dict(message.wire()) for message in self._messages]

    @property
    def text(self) -> str:
        """The model's last message."""
        said = [message.content for message in self._messages if message.role == "assistant"]
        return said[-1] if said and isinstance(said[-1], str) else ""

    @property
    def _messages(self) -> Sequence[ChatMessage]:
        return self.transcript.messages


@dataclass(frozen=True)
class Group:
    """The scored rollouts of one item."""

    id: str
    item: dict[str, JsonValue]
    rollouts: tuple[Rollout, ...]

    @property
    def rewards(self) -> tuple[float, ...]:
        return tuple(rollout.reward for rollout in self.rollouts)


class Run:
    """A run of the store. It may be running still: each look reads what is scored by then.

    Methods block; from coroutines call them by `asyncio.to_thread`. All raise ClothoError: InvalidInput for what
    can't be done, Unavailable where the store or Temporal doesn't answer.
    """

    def __init__(self, name: str, session: Session) -> None:
        self.name = name
        self._session = session

    def summary(self) -> RunSummary:
        """State, work, cost, failures and figures."""
        return _do(read_summary(self._session.journal, self.name, self._session.client))

    @property
    def state(self) -> str:
        """running, paused, scored, incomplete, cancelled or failed."""
        return self.summary().state

    @property
    def mean_reward(self) -> float | None:
        """The mean reward over items; None before one is scored. Its interval: `summary().figures.reward`."""
        reward = self.summary().figures.reward
        return reward.mean if reward is not None else None

    def pass_at(self, k: int, success: float = 1.0) -> float:
        """The chance that one of `k` rollouts of an item has at least the reward `success`.

        Raises InvalidInput for more rollouts than groups have.
        """
        scores = _do(read_results(self._session.journal, self.name)).scores
        most = min(map(len, scores), default=0)
        if not 0 < k <= most:
            raise InvalidInput(f"pass@{k}: {self.name} has {most} scored rollouts of each item")
        return pass_at(k, scores, success).mean

    @property
    def cost(self) -> float | None:
        """US dollars; None for a run without prices."""
        return self.summary().cost

    def groups(self) -> Iterator[Group]:
        """The scored groups, in the order of their items."""
        for name, entry in _do(scored_groups(self._session.journal, self.name)):
            yield group_of(name, entry, self._session)

    def rollouts(self) -> Iterator[Rollout]:
        """The scored rollouts, in the order of their items."""
        for group in self.groups():
            yield from group.rollouts

    def to_pandas(self) -> pandas.DataFrame:
        """A row for each scored rollout. Raises InvalidInput without pandas."""
        return frames.pandas_frame(frames.rollout_rows(self.rollouts()))

    def to_polars(self) -> polars.DataFrame:
        """A row for each scored rollout, for polars. Raises InvalidInput without polars."""
        return frames.polars_frame(frames.rollout_rows(self.rollouts()))

    def turns(self) -> pandas.DataFrame | polars.DataFrame:
        """A row for each turn of each scored rollout, for pandas, or for polars where pandas isn't installed."""
        return frames.any_frame(frames.turn_rows(self.rollouts()))

    def pause(self) -> None:
        """Pause every rollout before its next turn."""
        self._operate(Operations.pause)

    def resume(
        self, budget: Mapping[str, Any] | str | None = None, prices: Mapping[str, Any] | str | None = None
    ) -> None:
        """Go on after a pause; groups of a run that has ended are started again unless they are scored.

        `budget` and `prices`: new ones, as `clotho.run` takes them.
        """
        given = {"budget": budget, "prices": prices}
        account = checked_settings({name: value for name, value in given.items() if value is not None})

        async def resume(operations: Operations, target: Target) -> None:
            if account != RunSettings():
                await operations.change_budget(target, account)
            await operations.resume(target)

        self._operate(resume)

    def retry(self) -> bool:
        """Start what failed or was cancelled again; False if it runs. Raises InvalidInput if all is scored."""
        return self._operate(Operations.retry)

    def cancel(self) -> None:
        """End the run and its sandboxes. What is scored stays."""
        self._operate(Operations.cancel)

    def delete(self) -> None:
        """Delete the run, which must have ended: journal, results and histories. What was exported stays."""
        self._serve(lambda journal, client: delete_run(journal, client, self.name))

    def wait(self, progress: bool = True) -> Run:
        """Block until the run ends, with its progress if wished. Ctrl-C stops waiting; the run goes on."""
        from clotho.api.running import followed  # it makes the runs that it returns

        _do(followed(self._session.settings, self.name, progress))
        return self

    def export(self, output: str | Path, format: str = "messages", exclude: Collection[str] = ()) -> Path:
        """Write the scored groups as `clotho export` does; a Parquet file where the name ends in .parquet.

        `exclude` names disturbances: rollouts that have one of them are left out.
        """
        from clotho.evaluation.exporting import export

        kinds = [Disturbance(name) for name in exclude]
        _do(export(self._session.journal, self.name, format, Path(output), kinds))
        return Path(output)

    def compare(self, other: Run, success: float = 1.0, difference: float = DIFFERENCE) -> Comparison:
        """The other run less this one, on the items that both have scored."""
        mine, theirs = (_do(read_results(each._session.journal, each.name)) for each in (self, other))
        return compared(mine, theirs, success, difference)

    def _operate(self, work: Callable[[Operations, Target], Awaitable[Result]]) -> Result:
        return self._serve(lambda journal, client: work(Operations(journal, client), Target(self.name)))

    def _serve(self, work: Callable[[Journal, Client], Awaitable[Result]]) -> Result:
        """Do `work` with services of the store, which are started where none run."""

        async def serve() -> Result:
            settings = self._session.settings
            session, client = await sessions().serving(settings.store, settings.temporal.address, print)
            # what was opened while no server answered is read with one from now on
            self._session = session
            return await work(session.journal, client)

        return _do(serve())

    def __repr__(self) -> str:
        return f"<Run {self.name}>"

    def _repr_html_(self) -> str:
        from clotho.api.html import run_html

        return run_html(self.summary(), [group.rewards for group in self.groups()])


def group_of(name: str, entry: GroupEntry, session: Session) -> Group:
    return Group(
        name,
        entry.item,
        tuple(
            Rollout(
                id=one.rollout,
                item=entry.item,
                reward=one.score,
                outcome=str(one.ending.limit or one.ending.outcome),
                disturbances=tuple(map(str, disturbances_of(one, entry.repairs))),
                summary=one,
                session=session,
            )
            for one in entry.siblings
        ),
    )


def _do(work: Coroutine[Any, Any, Result]) -> Result:
    return background().call(work)
