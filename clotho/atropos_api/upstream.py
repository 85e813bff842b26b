"""atroposlib's application, and what it keeps in memory: read and put back as typed records.

The application's state is a bag of attributes that handlers make as they go; only this module knows their names.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from atroposlib.api.server import app
from pydantic import BaseModel, ConfigDict, JsonValue
from starlette.datastructures import State

from clotho.atropos_api.sent import Refused, SentGroup

Group = dict[str, Any]
"""A group as the application holds it; its identity is the object's, which is moved around and never copied."""

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
    """Where the application holds a group: `number` is the buffer's environment or the batch's index."""

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


def latest() -> Group | None:
    """What /latest_example shows."""
    found: Group | None = getattr(app.state, "latest", None)
    return found


def restore(known: Registration, groups: Sequence[Held], shown: Group | None) -> None:
    """Replace all that the application holds. Batches that were served come first when batches are fetched."""
    state = State(dict(known.attributes))
    if known.open:
        state.queue = [each.group for each in groups if each.place.kind == "queue"]
    state.buffer = {}
    for each in groups:
        if each.place.kind == "buffer":
            state.buffer.setdefault(each.place.number, []).append(each.group)
    state.curr_batch = _batches(groups, "batch") + _batches(groups, "served")
    if shown is not None:
        state.latest = shown
    app.state = state


def _batches(groups: Sequence[Held], kind: str) -> list[list[Group]]:
    batches: dict[int, list[Group]] = {}
    for each in groups:
        if each.place.kind == kind:
            batches.setdefault(each.place.number, []).append(each.group)
    return [batches[number] for number in sorted(batches)]


def admit(groups: Sequence[SentGroup]) -> None:
    """Raises Refused for groups that no batch could ever hold, or that come before a trainer."""
    state = app.state
    if not hasattr(state, "queue"):
        # Kept now, they would make atroposlib take the trainer for registered, without its batch size.
        raise Refused(503, "no trainer is registered: send this again later")
    for group in groups:
        sizes = {"a batch": state.batchsize}
        if group.env_id is not None and group.env_id < len(state.envs):
            sizes["its environment's group size"] = state.envs[group.env_id]["group_size"]
        for name, size in sizes.items():
            if group.rows > size:
                raise Refused(422, f"a group of {group.rows} rows is larger than {name}, {size}")
