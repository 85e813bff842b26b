"""The ledger, the cursor and the pending: what survives, and in what order."""

from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from clotho.environment.environment import json_item
from clotho.errors import EnvironmentFailed
from clotho.identifiers.ids import item_name, original_of, rollout_id, sibling_number
from clotho.identifiers.keys import scored_key
from clotho.journal import Journal
from clotho.journal.folder import FilesystemStore
from clotho.plugins.atropos.pending_groups import Items, PendingGroups
from clotho.rollouts.group import GroupEntry
from clotho.rollouts.item import Delivery, Item
from clotho.runs.items import read_item
from clotho.runs.ledger import Claim, Ledger


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    return Journal(FilesystemStore(tmp_path))


def drawing(*items: Any) -> Callable[[], Awaitable[Any]]:
    left = iter(items)

    async def draw() -> Any:
        return next(left, None)

    return draw


async def drawn(items: Items) -> list[Item]:
    found = []
    while (item := await items.next()) is not None:
        found.append(item)
    return found


async def test_every_claim_has_a_group_of_its_own(journal: Journal) -> None:
    ledger = Ledger(journal, "run")
    items: list[Item] = [{"id": "a"}, {"id": "b"}, {"id": "a"}, {"text": "/x"}]
    claims = [await ledger.claim(item, 3) for item in items]
    assert [claim.group for claim in claims[:3]] == ["run/i-a.0", "run/i-b.0", "run/i-a.1"]
    assert claims[3].group.startswith("run/h-")
    assert claims[3].group.count("/") == 1
    assert await read_item(journal, "run", 2) == {"id": "a"}
    assert await Ledger(journal, "run").load() == claims


async def test_a_claim_whose_answer_was_lost_is_the_same_when_it_is_made_again(journal: Journal) -> None:
    """An age over restarts: it has the time of its first attempt."""
    first = await Ledger(journal, "run").claim({"id": "a"}, 3)
    assert await Ledger(journal, "run").claim({"id": "a"}, 3) == first
    assert first.at is not None
    second = await Ledger(journal, "run").claim({"id": "b"}, 3)
    assert second.number == 1
    assert PendingGroups([second, first]).oldest() == first.at
    assert PendingGroups().oldest() is None


async def test_states_follow_one_another(journal: Journal) -> None:
    ledger = Ledger(journal, "run")
    claim = await ledger.claim({"id": "a"}, 0)
    assert await ledger.finished([claim]) == []
    await journal.write(scored_key(claim.group), GroupEntry(item={"id": "a"}, toolsets=(), siblings=()))
    assert await ledger.finished([claim]) == await ledger.undelivered([claim]) == [claim]
    assert await ledger.sending(claim.group) is False
    assert await Ledger(journal, "run").sending(claim.group) is True
    await ledger.acknowledge(claim.group)
    await ledger.drop(claim.group, "late", "the first end stays")
    assert await ledger.delivery(claim.group) == Delivery()
    assert await ledger.undelivered([claim]) == []


async def test_a_dropped_group_says_why(journal: Journal) -> None:
    ledger = Ledger(journal, "run")
    await ledger.drop("run/i-a.0", "same_scores", "every score is 1")
    found = await ledger.delivery("run/i-a.0")
    assert found == Delivery(reason="same_scores", detail="every score is 1")


async def test_the_cursor_goes_on_in_a_dataset_of_the_same_order() -> None:
    dataset = [{"id": str(number)} for number in range(5)]
    done = Counter(item_name(item) for item in dataset[:3])
    assert await drawn(Items(drawing(*dataset), done)) == dataset[3:]


async def test_a_shuffled_dataset_hands_out_the_rest() -> None:
    dataset = [{"id": number} for number in "edcba"]
    done = Counter(item_name({"id": number}) for number in "ab")
    assert await drawn(Items(drawing(*dataset), done)) == [{"id": number} for number in "edc"]


async def test_a_second_epoch_goes_on_within_itself() -> None:
    dataset = [{"id": number} for number in "abc"]
    done = Counter({"i-a": 2, "i-b": 1, "i-c": 1})
    assert await drawn(Items(drawing(*dataset, *dataset), done)) == [{"id": "b"}, {"id": "c"}]


@pytest.mark.parametrize("item", ["text", 3, ("a", "b"), {"a": object()}])
async def test_what_is_no_json_object_is_no_item(item: Any) -> None:
    with pytest.raises(EnvironmentFailed, match="item"):
        json_item(item)


@pytest.mark.parametrize(
    "item", [{"id": "a/b"}, {"id": "../x"}, {"id": ""}, {"id": "x" * 65}, {"id": {"a": 1}}, {"id": "ü"}]
)
def test_names_from_outside_are_encoded(item: Item) -> None:
    assert item_name(item).startswith("h-")


def test_a_rollout_of_a_drawn_group_has_its_number() -> None:
    """The group's own name holds a dot."""
    rollout = f"{rollout_id('run/i-r7.3', 2)}.1"
    assert original_of(rollout) == "run/i-r7.3/r2"
    assert sibling_number(rollout) == 2


def test_the_book_offers_each_claim_once_until_it_comes_back() -> None:
    claims = [Claim(number, f"run/i-{number}.0", {"id": number}, 0) for number in range(2)]
    pending = PendingGroups(claims)
    assert [pending.offer(claim).claim for claim in claims if pending.waiting() == claim] == claims
    assert pending.waiting() is None
    with pending.hold(claims[0]):
        assert pending.idle() == [claims[1]]
    assert pending.idle() == claims
    assert pending.put_back(claims[0]) == 1
    assert pending.waiting() is None, "only after a pause"
    pending.settle(claims[0].group)
    assert claims[0] not in pending
    assert len(pending) == 1
