"""The API's state, all of it in one SQLite file: the trainer, its environments, and groups until they arrived.

The queue answers like atroposlib's application, which keeps this state in memory, and lets atroposlib's functions
choose batches. Each method is one transaction: what it returns is on the disk. The process keeps no copy in memory.
"""

import json
import math
import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import zstandard
from atroposlib.api.server import MIN_ENV_WEIGHT
from atroposlib.api.utils import (
    find_groups_summing_to_target,
    grab_batch_with_minimum_allocations,
    grab_exact_from_heterogeneous_queue,
)
from pydantic import BaseModel

from clotho.listeners.refused import Refused
from clotho.plugins.atropos.api.queue_file import open_queue_file
from clotho.plugins.atropos.api.sent import Environment, EnvironmentNumber, SentGroup, Trainer

MOST_WAITING = 20_000
"""Groups in the queue: choosing those of a batch takes time with their number."""
MOST_PACKING = 5_000_000
"""Cells of tables, in a second or so."""
MOST_REGISTERED = 10_000
"""Trainers, or environments, disconnected ones included."""
TRY_AGAIN = {"retry-after": "5"}
COMPRESSION = 1
"""Level of zstandard: writing fewer bytes saves more time than it takes."""
APPENDED = "coalesce((SELECT max(position) FROM groups WHERE place = 'queue' AND part = 0), 0) + 1"
"""The position behind the last group of the queue."""
FIELDS = "tokens masks scores advantages ref_logprobs generation_params inference_logprobs messages images"
NO_EXAMPLE = json.dumps({name: [] for name in FIELDS.split()}).encode()
"""The example that is shown before the first group."""

Answer = dict[str, Any]


class State(BaseModel):
    """The queue's fields beside its groups: registrations and fetches set them."""

    trainer: Trainer | None = None
    """The first that registered since the last reset, or the last one before it."""
    open: bool = False
    """Whether a trainer registered since the last reset."""
    started: bool = False
    """Whether it asked for a batch."""
    step: int = 0
    trainers: int = 0
    latest: int = 0
    """The newest group that was queued."""

    @property
    def registered(self) -> Trainer | None:
        return self.trainer if self.open else None


@dataclass(frozen=True)
class Batch:
    """A batch that was served."""

    number: int
    ids: str
    content: bytes
    """The groups as JSON."""


class Queue:
    """The state in one file. Methods block: one thread at a time calls them, in one process for each file."""

    def __init__(self, path: Path) -> None:
        """Open or make the file. Raises InvalidInput if it can't be used."""
        self._file = open_queue_file(path)
        self._file.row_factory = sqlite3.Row

    def close(self) -> None:
        self._file.close()

    def register(self, trainer: Trainer) -> Answer:
        with self._changing() as state:
            _check_room(state.trainers)
            # as in atroposlib, the first trainer counts: what a second one asks for is ignored
            if not state.open:
                state.trainer, state.open, state.step = trainer, True, trainer.starting_step
            state.trainers += 1
        # atroposlib gives every trainer such a number; no request shows it
        return {"uuid": uuid4().int}

    def register_environment(self, asked: Environment) -> Answer:
        with self._changing() as state:
            if (trainer := state.registered) is None or not state.started:
                return {"status": "wait for trainer to start"}
            number = self._count("environments")
            _check_room(number)
            same = self._count("environments WHERE name = ?", asked.desired_name)
            row = (number, asked.desired_name, asked.max_token_length, asked.weight, asked.group_size)
            self._file.execute(
                "INSERT INTO environments VALUES (?, ?, ?, ?, ?, ?, TRUE)", (*row, asked.min_batch_allocation)
            )
        return {
            "status": "success",
            "env_id": number,
            "wandb_name": f"{asked.desired_name}_{same}",
            "checkpoint_dir": trainer.checkpoint_dir,
            "starting_step": state.step,
            "checkpoint_interval": trainer.save_checkpoint_interval,
            "num_steps": trainer.num_steps,
        }

    def disconnect(self, asked: EnvironmentNumber) -> Answer:
        with self._changing():
            update = "UPDATE environments SET connected = FALSE WHERE number = ?"
            known = self._file.execute(update, (asked.env_id,)).rowcount
        # atroposlib answers with the text of its IndexError
        return {"status": "success"} if known else {"status": "failure", "error": "list index out of range"}

    def wandb_info(self) -> Answer:
        trainer = self._state().registered
        if trainer is None:
            return {"group": None, "project": None}
        return {"group": trainer.wandb_group, "project": trainer.wandb_project}

    def info(self) -> Answer:
        state = self._state()
        return {
            "batch_size": state.registered.batch_size if state.registered else -1,
            "max_token_len": state.trainer.max_token_len if state.trainer else -1,
        }

    def status(self) -> Answer:
        return {"current_step": self._state().step, "queue_size": self._waiting()}

    def environment_status(self, asked: EnvironmentNumber) -> Answer:
        """The environment's weight and its waiting rows; its group size grows to that of its largest waiting group.

        Raises Refused if the environment is unknown, or none is connected.
        """
        with self._changing() as state:
            environments = self._file.execute("SELECT * FROM environments ORDER BY number").fetchall()
            connected = [each for each in environments if each["connected"]]
            # numbers have no gaps: only a reset deletes environments, and it deletes all
            if asked.env_id >= len(environments):
                raise Refused(404, f"no environment {asked.env_id} is registered")
            if not connected:
                raise Refused(404, f"environment {asked.env_id} was disconnected, as were all others")
            waiting = self._file.execute(
                "SELECT environment, sum(rows) AS rows, max(rows) AS most FROM groups"
                " WHERE place = 'queue' GROUP BY environment"
            ).fetchall()
            own = environments[asked.env_id]
            most_of_own = (each["most"] for each in waiting if each["environment"] == asked.env_id)
            size = max(own["size"], next(most_of_own, 1))
            update = "UPDATE environments SET size = ? WHERE number = ? AND size < ?"
            self._file.execute(update, (size, asked.env_id, size))
        batch_size = state.registered.batch_size if state.registered else 0
        least = {
            each["number"]: int(batch_size * each["share"]) for each in connected if each["share"] is not None
        }
        largest = max((each["most"] for each in waiting), default=1)
        own_rows = others = 0
        for each in waiting:
            if each["environment"] == asked.env_id:
                own_rows = each["rows"]
            elif largest > 1:
                # what others may add to a batch: whole packs beyond the least that they are given anyway
                packed = math.ceil(each["rows"] / largest) * largest
                others += max(0, packed - least.get(each["environment"], 0))
        weight = own["context"] * own["weight"] / sum(each["context"] * each["weight"] for each in connected)
        shares = sum(each["share"] for each in connected if each["share"] is not None)
        return {
            "current_step": state.step,
            "queue_size": (own_rows + others) // size,
            "unallocated_fraction": 1.0 - min(shares, 1.0),
            "self_queue_size": own_rows // size,
            "max_group_size": largest,
            "env_weight": max(MIN_ENV_WEIGHT, weight),
        }

    def accept(self, group: SentGroup) -> Answer:
        duplicates, buffered = self._accepted([group])
        if duplicates:
            return {"status": "received", "duplicate": True}
        return {"status": "buffered", "buffer_size": buffered[0]} if buffered else {"status": "received"}

    def accept_list(self, groups: Sequence[SentGroup]) -> Answer:
        duplicates, buffered = self._accepted(groups)
        answer: Answer = {"status": "received", "groups_processed": len(groups)}
        if buffered:
            answer |= {"buffered": len(buffered), "last_buffer_size": buffered[-1]}
        return answer | ({"duplicates": duplicates} if duplicates else {})

    def fetch(self, arrived: Iterable[int], on_their_way: Iterable[int]) -> Batch | Answer:
        """Delete the batches that arrived, and serve the next one.

        A batch that was served, but neither arrived nor is on its way, comes before new ones.
        """
        with self._changing() as state:
            if (trainer := state.registered) is None:
                message = "Trainer not registered. Call /register first."
                return {"status": "error", "message": message, "batch": []}
            state.started = True
            # before the look for lost batches: what arrived must not be served again
            for number in arrived:
                self._remove(state, "place = 'served' AND part = ?", number)
            served = {
                part for (part,) in self._file.execute("SELECT part FROM groups WHERE place = 'served'")
            }
            if lost := served.difference(on_their_way):
                number = min(lost)
            else:
                waiting = "SELECT max(part) FROM groups WHERE place = 'batch'"
                # above the numbers on their way: a number is used again only once its batch has arrived
                if self._first(waiting) is None:
                    # as in atroposlib, a step is counted when its batch is made, not when it is fetched
                    state.step += self._make_batches(trainer.batch_size, max(served, default=0) + 1)
                # as in atroposlib, the last one is fetched first
                if (number := self._first(waiting)) is None:
                    return {"batch": None}
                serve = "UPDATE groups SET place = 'served' WHERE place = 'batch' AND part = ?"
                self._file.execute(serve, (number,))
        # after the commit: no batch leaves that the file doesn't call served
        groups = self._file.execute(
            "SELECT id, content FROM groups JOIN contents USING (number)"
            " WHERE place = 'served' AND part = ? ORDER BY position",
            (number,),
        ).fetchall()
        content = b"[" + b",".join(zstandard.decompress(content) for _, content in groups) + b"]"
        return Batch(number, ",".join(str(group_id) for group_id, _ in groups), content)

    def latest_example(self) -> bytes:
        """The newest group that was queued, as JSON."""
        content = self._first("SELECT content FROM contents WHERE number = ?", self._state().latest)
        return zstandard.decompress(content) if content else NO_EXAMPLE

    def reset(self) -> None:
        """Forget everything but the example, and the length that the last trainer gave."""
        with self._changing() as state:
            self._remove(state, "TRUE")
            self._file.execute("DELETE FROM accepted")
            self._file.execute("DELETE FROM environments")
            state.open, state.started, state.step, state.trainers = False, False, 0, 0

    def known(self, ids: Iterable[str]) -> set[str]:
        """The subset of `ids` that was ever accepted."""
        query = "SELECT id FROM accepted WHERE id = ?"
        return {known for each in ids if (known := self._first(query, each)) is not None}

    def held(self) -> list[str | None]:
        """Ids of the groups that wait or were served; a served group may not have arrived."""
        return [found for (found,) in self._file.execute("SELECT id FROM groups WHERE place != 'shown'")]

    def _accepted(self, groups: Sequence[SentGroup]) -> tuple[int, list[int]]:
        """Accept new groups. Returns the number of duplicates, and the buffer's rows after each part."""
        duplicates, buffered = 0, []
        with self._changing() as state:
            self._check(state, groups)
            for group in groups:
                if not self._is_new(group.group_id):
                    duplicates += 1
                elif (rows := self._add(state, group)) is not None:
                    buffered.append(rows)
        return duplicates, buffered

    def _is_new(self, group_id: str | None) -> bool:
        """Note the id. Returns whether it was unknown."""
        note = "INSERT OR IGNORE INTO accepted VALUES (?)"
        return group_id is None or self._file.execute(note, (group_id,)).rowcount > 0

    def _add(self, state: State, group: SentGroup) -> int | None:
        """Queue a group, or buffer a part of one; returns the rows that its environment's buffer then has."""
        size = self._size_of(group)
        # as in atroposlib, groups of an unregistered environment are queued in any size
        if group.env_id is None or size is None or size == group.rows:
            self._show(state, self._insert(group, "queue", 0))
            return None
        self._insert(group, "buffer", group.env_id)
        parts: list[tuple[int, int]] = self._file.execute(
            "SELECT number, rows FROM groups WHERE place = 'buffer' AND part = ? ORDER BY number",
            (group.env_id,),
        ).fetchall()
        # atroposlib asks for lengths alone
        chosen = find_groups_summing_to_target([{"tokens": range(rows)} for _, rows in parts], size)
        move = f"UPDATE groups SET place = 'queue', part = 0, position = {APPENDED} WHERE number = ?"
        for number, _ in (parts[index] for index in chosen):
            self._file.execute(move, (number,))
            self._show(state, number)
        return sum(rows for index, (_, rows) in enumerate(parts) if index not in chosen)

    def _check(self, state: State, groups: Sequence[SentGroup]) -> None:
        """Raises Refused for groups that no batch could ever hold, or that come before a trainer."""
        if state.registered is None:
            raise Refused(503, "no trainer is registered: send this again later", TRY_AGAIN)
        if (waiting := self._waiting()) + len(groups) > MOST_WAITING:
            raise Refused(503, f"{waiting} groups wait for the trainer: send this again later", TRY_AGAIN)
        parts: Counter[tuple[int, int]] = Counter()
        for group in groups:
            size = self._size_of(group)
            bounds = {"a batch": state.registered.batch_size, "its environment's group size": size}
            for name, most in bounds.items():
                if most is not None and group.rows > most:
                    raise Refused(422, f"a group of {group.rows} rows is larger than {name}, {most}")
            if size is not None and group.env_id is not None:
                parts[group.env_id, size] += group.rows != size
        for (environment, size), coming in parts.items():
            # atroposlib looks for parts that fill a group in a table of their number times its size, for each
            waiting = coming + self._count("groups WHERE place = 'buffer' AND part = ?", environment)
            if coming * waiting * size > MOST_PACKING:
                raise Refused(422, f"{waiting} groups would wait for others to fill {size} rows: too many")

    def _size_of(self, group: SentGroup) -> int | None:
        """The registered group size of the group's environment; None if that isn't registered."""
        size: int | None = self._first("SELECT size FROM environments WHERE number = ?", group.env_id)
        return size

    def _insert(self, group: SentGroup, place: str, part: int) -> int:
        self._file.execute(
            f"INSERT INTO groups VALUES (NULL, ?, ?, {APPENDED}, ?, ?, ?)",
            (place, part, group.env_id, group.rows, group.group_id),
        )
        number: int = self._first("SELECT last_insert_rowid()")
        # without an id the trainer sees atroposlib's own fields alone
        text = group.model_dump_json(exclude={"group_id"} if group.group_id is None else None)
        content = zstandard.compress(text.encode(), COMPRESSION)
        self._file.execute("INSERT INTO contents VALUES (?, ?)", (number, content))
        return number

    def _make_batches(self, batch_size: int, first: int) -> int:
        """Make all batches that the queue has groups for, numbered from `first` on. Returns their number."""
        # atroposlib's functions read env_id and count rows: `range` stands for them, and contents stay on disk
        queue = [
            {"number": number, "env_id": environment, "tokens": range(rows)}
            for number, environment, rows in self._file.execute(
                "SELECT number, environment, rows FROM groups WHERE place = 'queue' ORDER BY position"
            )
        ]
        shares = [
            {"registered_id": number, "min_batch_allocation": share, "connected": True}
            for number, share in self._file.execute(
                "SELECT number, share FROM environments WHERE connected AND share IS NOT NULL ORDER BY number"
            )
        ]
        made = 0
        while True:
            if shares:
                batch, queue = grab_batch_with_minimum_allocations(queue, batch_size, shares)
            else:
                batch, queue = grab_exact_from_heterogeneous_queue(queue, batch_size)
            if batch is None:
                return made
            self._file.executemany(
                "UPDATE groups SET place = 'batch', part = ?, position = ? WHERE number = ?",
                [(first + made, position, group["number"]) for position, group in enumerate(batch)],
            )
            made += 1

    def _show(self, state: State, number: int) -> None:
        state.latest = number
        # a group in this place is in no queue or batch: it was kept only as the example, which is now another
        self._file.execute("DELETE FROM groups WHERE place = 'shown'")

    def _remove(self, state: State, where: str, *arguments: object) -> None:
        """Remove groups; the newest is shown even then."""
        self._file.execute(
            f"UPDATE groups SET place = 'shown', part = 0 WHERE number = ? AND {where}",
            (state.latest, *arguments),
        )
        self._file.execute(f"DELETE FROM groups WHERE place != 'shown' AND {where}", arguments)

    def _waiting(self) -> int:
        return self._count("groups WHERE place = 'queue'")

    def _count(self, what: str, *arguments: object) -> int:
        return int(self._first(f"SELECT count(*) FROM {what}", *arguments))

    def _state(self) -> State:
        return State.model_validate_json(self._first("SELECT content FROM state"))

    def _first(self, query: str, *arguments: object) -> Any:
        """The first column of the first row; None if there is none."""
        found = self._file.execute(query, arguments).fetchone()
        return found[0] if found else None

    @contextmanager
    def _changing(self) -> Iterator[State]:
        """One transaction, and the state in it, which is written if it changed."""
        # the connection begins no transaction by itself (isolation_level None); `with` commits or rolls back
        with self._file:
            self._file.execute("BEGIN IMMEDIATE")
            state = self._state()
            before = state.model_copy()
            yield state
            if state != before:
                self._file.execute("UPDATE state SET content = ?", (state.model_dump_json(),))


def _check_room(registered: int) -> None:
    if registered >= MOST_REGISTERED:
        raise Refused(409, f"{MOST_REGISTERED} are registered already: /reset_data forgets them")
