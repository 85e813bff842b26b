"""A dataset's rows as items: filtered, shuffled, chosen by id or by chance, and checked to be JSON."""

import json
import random
from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

from clotho.dataset_config import DatasetConfig, ItemChoice, file_digest
from clotho.datasets.files import READERS, Rows, packaged_rows
from clotho.errors import InvalidInput
from clotho.rollouts.item import Item

SHOWN_IDS = 10


def dataset_items(config: DatasetConfig) -> Iterator[Item]:
    """The items of a dataset, in an order that is the same every time.

    Raises InvalidInput for what isn't there or isn't JSON, and for ids that no row has; Unavailable for a hub that
    can't be reached.
    """
    items = (_item(config, number, row) for number, row in enumerate(_rows(config)))
    kept = (item for item in items if _passes(config, item))
    return islice(chosen_items(config.choice, kept, f"dataset {config.source}"), config.limit)


def chosen_items(choice: ItemChoice, items: Iterable[Item], source: str) -> Iterator[Item]:
    """The chosen ones of `items`, which come from `source`, in an order that is the same every time.

    Raises InvalidInput for ids that no item has.
    """
    ordered = iter(items) if choice.shuffle is None else _shuffle(items, choice.shuffle)
    named = _with_ids(choice.ids, ordered, source) if choice.ids else ordered
    return named if choice.sample is None else _sample_items(named, choice.sample, choice.shuffle or 0)


def _rows(config: DatasetConfig) -> Rows:
    if config.kind != "file":
        return packaged_rows(config)
    path = Path(config.source)
    if config.digest is not None and file_digest(path) != config.digest:
        raise InvalidInput(f"dataset {path} is another file than the one that the run began with")
    if not path.is_file():
        raise InvalidInput(f"dataset {path}: there is no such file")
    return READERS[path.suffix](path)


def _item(config: DatasetConfig, number: int, row: Mapping[str, Any]) -> Item:
    item: Item = dict(row)
    for name, field in (("prompt", config.prompt_field), ("id", config.id_field)):
        if field is None or field == name:
            continue
        if field not in item:
            fields = ", ".join(item) or "none"
            raise InvalidInput(f"dataset {config.source}, row {number}: no field {field!r} among {fields}")
        item[name] = item[field]
    for name, value in item.items():
        try:
            json.dumps(value, allow_nan=False)
        except (TypeError, ValueError) as error:
            raise InvalidInput(f"dataset {config.source}, row {number}: {name}: {error}") from error
    return item


def _passes(config: DatasetConfig, item: Item) -> bool:
    return all(
        name in item and item[name] in (wanted if isinstance(wanted, list) else [wanted])
        for name, wanted in config.filters.items()
    )


def _shuffle(items: Iterable[Item], seed: int) -> Iterator[Item]:
    drawn = list(items)
    random.Random(seed).shuffle(drawn)
    yield from drawn


def _sample_items(items: Iterable[Item], number: int, seed: int) -> Iterator[Item]:
    drawn = list(items)
    chosen = random.Random(seed).sample(range(len(drawn)), min(number, len(drawn)))
    yield from (drawn[index] for index in sorted(chosen))


def _with_ids(ids: Collection[str], items: Iterable[Item], source: str) -> Iterator[Item]:
    wanted, missing = frozenset(ids), dict.fromkeys(ids)
    for item in items:
        if (name := str(item.get("id"))) in wanted:
            missing.pop(name, None)
            yield item
    if missing:
        names = ", ".join(list(missing)[:SHOWN_IDS])
        raise InvalidInput(f"{source}: no item has the id {names}")
