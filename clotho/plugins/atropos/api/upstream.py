"""atroposlib's application, and what it keeps in memory: read and put back as typed records.

The application's state is a bag of attributes that handlers make as they go; only this module knows their names.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, SupportsIndex

from atroposlib.api.server import app
from pydantic import BaseModel, ConfigDict, JsonValue
from starlette.datastructures import State

from clotho.listeners.refused import Refused
from clotho.plugins.atropos.api.sent import Environment, EnvironmentNumber, SentGroup, Trainer

Group = dict[str, Any]
"""A group as the application holds it; its identity is the object's, which is moved around and never copied."""

MOST_WAITING = 20_000
"""Groups in the queue: choosing those of a batch takes time with their number."""
MOST_PACKING = 5_000_000
"""Cells of tables, in a second or so."""
MOST_REGISTERED = 10_000
"""Trainers, or environments, disconnected ones included."""
TRY_AGAIN = {"retry-after": "5"}

REGISTRATION = (
    "group",
    "project",
    "batchsize",
    "max_token_len",
    "status_dict",
    "checkpoint_dir",
    "save_checkpoint_interval",
    "num_steps",
    "started",
    "envs",
    "requesters",
)


@dataclass(frozen=True)
class Place:
    """The place of a group in the application: `number` is the buffer's environment or the batch's index."""

    kind: Literal["queue", "buffer", "batch", "served", "latest"]
    number: int = 0


class Registration(BaseModel):
    """The attributes that trainers and environments set, as far as they exist."""

    model_config = ConfigDict(frozen=True)

    open: bool = False
    """Whether a trainer has registered since the last reset."""
    attributes: dict[str, JsonValue] = {}


@dataclass(frozen=True)
class Held:
    """A group in memory, and where."""

    group: Group
    place: Place


class _Batches(list[list[Group]]):
    """The batches that wait to be fetched, and the one that was taken."""

    taken: Sequence[Group] = ()

    def pop(self, index: SupportsIndex = -1) -> list[Group]:
        self.taken = batch = super().pop(index)
        return batch


def watch_batches() -> None:
    """Have `taken_batch` tell what the application gives away from now on."""
    if hasattr(app.state, "curr_batch"):
        app.state.curr_batch = _Batches(app.state.curr_batch)


def taken_batch() -> Sequence[Group]:
    """The batch that was given away since `watch_batches`, in the order of the answer."""
    batches = getattr(app.state, "curr_batch", None)
    return batches.taken if isinstance(batches, _Batches) else ()


def registration() -> Registration:
    state = app.state
    return Registration(
        open=hasattr(state, "queue"),
        attributes={name: getattr(state, name) for name in REGISTRATION if hasattr(state, name)},
    )


def held() -> Iterator[Held]:
    """Every group that will be served, each kind in its order."""
    state = app.state
    for group in getattr(state, "queue", ()):
        yield Held(group, Place("queue"))
    for env, groups in getattr(state, "buffer", {}).items():
        for group in groups:
            yield Held(group, Place("buffer", env))
    for index, batch in enumerate(getattr(state, "curr_batch", ())):
        for group in batch:
            yield Held(group, Place("batch", index))


def put_back(batch: Sequence[Group]) -> None:
    """Make `batch` the next that is fetched."""
    app.state.curr_batch.append(list(batch))


def forget_start() -> None:
    """After a reset no trainer has started: asked for a batch, the application would fail, and let others in."""
    if hasattr(app.state, "started"):
        del app.state.started


def latest() -> Group | None:
    """The group that /latest_example shows."""
    found: Group | None = getattr(app.state, "latest", None)
    return found


def restore(known: Registration, groups: Sequence[Held], shown: Group | None) -> None:
    """Replace all that the application holds. Batches that were served are fetched first, the oldest before all."""
    state = State(dict(known.attributes))
    if known.open:
        state.queue = [each.group for each in groups if each.place.kind == "queue"]
    state.buffer = {}
    for each in groups:
        if each.place.kind == "buffer":
            state.buffer.setdefault(each.place.number, []).append(each.group)
    state.curr_batch = _batches(groups, "batch") + _batches(groups, "served")[::-1]
    if shown is not None:
        state.latest = shown
    app.state = state


def _batches(groups: Sequence[Held], kind: str) -> list[list[Group]]:
    batches: dict[int, list[Group]] = {}
    for each in groups:
        if each.place.kind == kind:
            batches.setdefault(each.place.number, []).append(each.group)
    return [batches[number] for number in sorted(batches)]


def admit_request(asked: Trainer | Environment | EnvironmentNumber) -> None:
    """Check a registration. Raises Refused for one that the application would hold for ever."""
    held = {Trainer: "requesters", Environment: "envs"}.get(type(asked))
    if held is not None and len(getattr(app.state, held, ())) >= MOST_REGISTERED:
        raise Refused(409, f"{MOST_REGISTERED} are registered already: /reset_data forgets them")


def check_environment(number: int) -> None:
    """Check an environment's number. Raises Refused if the application can't tell its share of the batches."""
    environments = getattr(app.state, "envs", ())
    if number >= len(environments):
        raise Refused(404, f"no environment {number} is registered")
    if not any(each["connected"] for each in environments):
        raise Refused(404, f"environment {number} was disconnected, as were all others")


def admit(groups: Sequence[SentGroup]) -> None:
    """Check groups. Raises Refused for those that no batch could ever hold, or that come before a trainer."""
    state = app.state
    if not hasattr(state, "queue"):
        # Kept now, they would make atroposlib take the trainer for registered, without its batch size.
        raise Refused(503, "no trainer is registered: send this again later", TRY_AGAIN)
    if len(state.queue) + len(groups) > MOST_WAITING:
        raise Refused(
            503, f"{len(state.queue)} groups wait for the trainer: send this again later", TRY_AGAIN
        )
    parts: Counter[int] = Counter()
    for group in groups:
        sizes = {"a batch": state.batchsize}
        if group.env_id is not None and group.env_id < len(state.envs):
            sizes["its environment's group size"] = size = state.envs[group.env_id]["group_size"]
            parts[group.env_id] += group.rows != size
        for name, size in sizes.items():
            if group.rows > size:
                raise Refused(422, f"a group of {group.rows} rows is larger than {name}, {size}")
    for env_id, coming in parts.items():
        _check_packing(env_id, coming)


def _check_packing(env_id: int, coming: int) -> None:
    """The application looks for parts that fill a group in a table of their number times its size, for each."""
    size = app.state.envs[env_id]["group_size"]
    waiting = len(app.state.buffer.get(env_id, ()))
    if coming * (waiting + coming) * size > MOST_PACKING:
        raise Refused(422, f"{waiting + coming} groups would wait for others to fill {size} rows: too many")
