"""Keeps the file equal to the application's memory: which groups came, moved and went since the last answer."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from clotho.plugins.atropos.api import upstream
from clotho.plugins.atropos.api.queue_file import Changes, Contents, Row
from clotho.plugins.atropos.api.sent import SentGroup
from clotho.plugins.atropos.api.upstream import Group, Held, Place, Registration


@dataclass(eq=False)
class FetchedBatch:
    """A batch that was fetched, until the next fetch says that it arrived."""

    groups: Sequence[Group]
    """The batch's groups, in the order of the answer."""
    rows: Sequence[int]
    answered: bool = False
    """True once its answer was handed to the network whole."""
    torn: bool = False
    """The connection ended before its client can have read all of it."""

    @property
    def names(self) -> str:
        return ",".join(str(group.get("group_id")) for group in self.groups)


class Mirror:
    """The rows in the file, by the identity of their groups."""

    def __init__(self) -> None:
        self._rows: dict[int, Row] = {}
        self._served: list[FetchedBatch] = []
        self._given_up: list[FetchedBatch] = []
        """Batches that arrived, until their removal is written."""
        self._next_row = self._next_position = 1
        self._registration = Registration()
        self._latest: int | None = None

    def load(self, contents: Contents) -> None:
        """Make the application's memory what the file says.

        Batches that the file has as served, and that are not known to be on their way, are to be fetched again.
        """
        self._rows = {id(each.group): each for each in contents.rows}
        self._served = self._still_served(contents)
        self._next_row = max((each.row for each in contents.rows), default=0) + 1
        self._next_position = max((each.position for each in contents.rows), default=0) + 1
        self._registration, self._latest = contents.registration, contents.latest
        latest = next((each.group for each in contents.rows if each.row == contents.latest), None)
        on_their_way = {row for served in self._served for row in served.rows}
        upstream.restore(
            contents.registration,
            [Held(each.group, each.place) for each in contents.rows if each.row not in on_their_way],
            latest,
        )

    def name(self, sent: Sequence[SentGroup]) -> None:
        """Write their ids into the groups that the application has just made of `sent`."""
        unnamed = list(sent)
        for held in upstream.held():
            if id(held.group) not in self._rows:
                # Comparing long rows takes milliseconds.
                alone = len(unnamed) == 1
                index = (
                    0 if alone else next(i for i, each in enumerate(unnamed) if _made_of(held.group, each))
                )
                if (name := unnamed.pop(index).group_id) is not None:
                    held.group["group_id"] = name

    def fetched(self) -> FetchedBatch:
        """The batch that the application has given away since `upstream.watch_batches`."""
        groups = upstream.taken_batch()
        served = FetchedBatch(groups, [self._rows[id(group)].row for group in groups])
        if served.groups:
            self._served.append(served)
        return served

    def drop_arrived(self) -> None:
        """Give up the batches that the trainer must have, since it asks for the next."""
        self._given_up = [each for each in self._served if each.answered]
        self._served = [each for each in self._served if not each.answered]

    def requeue(self, served: FetchedBatch) -> None:
        """Serve it next, unless it was given up or is to be served again already."""
        if served.groups and served in self._served:
            self._served.remove(served)
            upstream.put_back(served.groups)

    def drop_served(self) -> None:
        self._given_up, self._served = self._served, []

    def changes(self, accepted: Sequence[str] = (), *, forget_accepted: bool = False) -> Changes | None:
        """The changes that the file lacks; None if there are none. Write them, or `load` again."""
        added: list[Row] = []
        moved: list[Row] = []
        rows: dict[int, Row] = {}
        for held in self._live():
            row = self._rows.get(id(held.group))
            if row is None:
                row = Row(self._next_row, self._take_position(), held.place, held.group)
                self._next_row += 1
                added.append(row)
            elif row.place != held.place:
                row = replace(row, position=self._take_position(), place=held.place)
                moved.append(row)
            rows.setdefault(id(held.group), row)
        removed = [row.row for key, row in self._rows.items() if key not in rows]
        newest = upstream.latest()
        registration, latest = upstream.registration(), None if newest is None else rows[id(newest)].row
        same = (registration, latest) == (self._registration, self._latest)
        self._rows, self._registration, self._latest = rows, registration, latest
        if same and not (added or moved or removed or accepted or forget_accepted):
            return None
        return Changes(added, moved, removed, accepted, forget_accepted, registration, latest)

    def _still_served(self, contents: Contents) -> list[FetchedBatch]:
        """The batches on their way, or arrived, as the file has them: their groups are other objects now."""
        groups = {each.row: each.group for each in contents.rows if each.place.kind == "served"}
        still = [each for each in (*self._given_up, *self._served) if all(row in groups for row in each.rows)]
        for served in still:
            served.groups = [groups[row] for row in served.rows]
        return still

    def _live(self) -> list[Held]:
        live = list(upstream.held())
        for number, served in enumerate(self._served):
            live += [Held(group, Place("served", number)) for group in served.groups]
        latest = upstream.latest()
        if latest is not None and all(held.group is not latest for held in live):
            live.append(Held(latest, Place("latest")))
        return live

    def _take_position(self) -> int:
        self._next_position += 1
        return self._next_position - 1


def _made_of(group: Group, sent: SentGroup) -> bool:
    return (group["env_id"], group["tokens"], group["masks"]) == (sent.env_id, sent.tokens, sent.masks)
