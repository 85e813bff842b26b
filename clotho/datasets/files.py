"""Rows of JSONL, CSV and Parquet files, and of datasets of the Hugging Face hub."""

import csv
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from clotho.dataset_config import DatasetConfig
from clotho.errors import InvalidInput, Unavailable
from clotho.rollouts.item import Item

ITEM: TypeAdapter[Item] = TypeAdapter(Item)
# the csv module's own limit of 131,072 characters is less than a long prompt
LONGEST_FIELD = 1 << 27
EXTRA = "install clotho-rollouts[datasets]"

Rows = Iterator[Mapping[str, Any]]


def jsonl_rows(path: Path) -> Iterator[Item]:
    """One JSON object a line, blank lines aside; raises InvalidInput that names the line."""
    # Not by text lines: a JSON string may hold the other line separators of Unicode.
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if line.strip():
                yield _object(path, number, line)


def _object(path: Path, number: int, line: bytes) -> Item:
    try:
        item = ITEM.validate_json(line)
        # pydantic accepts NaN and infinities as JSON values
        json.dumps(item, allow_nan=False)
        return item
    except ValidationError as error:
        reason = error.errors(include_url=False, include_input=False)[0]["msg"]
        raise InvalidInput(f"{path}:{number}: not a JSON object ({reason})") from None
    except ValueError:
        raise InvalidInput(f"{path}:{number}: NaN and Infinity are no JSON: write null") from None


def csv_rows(path: Path) -> Rows:
    """Rows keyed by the names in the first row; all values are text."""
    csv.field_size_limit(LONGEST_FIELD)
    # -sig: spreadsheets begin UTF-8 with a mark, which would be a part of the first name
    with path.open(newline="", encoding="utf-8-sig") as file:
        reader = csv.reader(file, strict=True)
        try:
            header = next(reader, [])
            if len(set(header)) != len(header) or "" in header:
                raise InvalidInput(f"{path}:1: the columns need names, each another one")
            for row in reader:
                if len(row) != len(header) and row:
                    raise InvalidInput(
                        f"{path}:{reader.line_num}: {len(row)} values for {len(header)} columns"
                    )
                if row:
                    yield dict(zip(header, row, strict=True))
        except (csv.Error, UnicodeDecodeError) as error:
            raise InvalidInput(f"{path}:{reader.line_num + 1}: not CSV in UTF-8 ({error})") from error


def parquet_rows(path: Path) -> Rows:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as error:
        raise InvalidInput(f"Parquet files need pyarrow: {EXTRA}") from error
    try:
        with parquet.ParquetFile(path) as file:
            # by batches: a file may be larger than memory
            for batch in file.iter_batches():
                yield from batch.to_pylist()
    except pyarrow.ArrowException as error:
        raise InvalidInput(f"{path}: not a Parquet file ({error})") from error


READERS: dict[str, Callable[[Path], Rows]] = {
    ".jsonl": jsonl_rows,
    ".csv": csv_rows,
    ".parquet": parquet_rows,
}


def packaged_rows(config: DatasetConfig) -> Rows:
    """Rows of a dataset of the hub. Raises InvalidInput if it isn't there, Unavailable if the hub isn't reached."""
    try:
        from datasets import DatasetDict, load_dataset
    except ImportError as error:
        raise InvalidInput(f"{config.source}: Hugging Face datasets need a package: {EXTRA}") from error
    try:
        loaded = load_dataset(config.source, config.subset, split=config.split, revision=config.revision)
    except ConnectionError as error:
        raise Unavailable(f"dataset {config.source}: the hub can't be reached: {error}") from error
    # a dataset that isn't there, and a subset or split that it hasn't
    except (FileNotFoundError, ValueError) as error:
        raise InvalidInput(f"dataset {config.source}: {error}") from error
    if isinstance(loaded, DatasetDict):
        if len(loaded) != 1:
            raise InvalidInput(f"dataset {config.source}: give one of its splits: {', '.join(loaded)}")
        [loaded] = loaded.values()
    yield from loaded
