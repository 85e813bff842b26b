"""A run's items from a JSONL file."""

import json
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from clotho.errors import InvalidInput
from clotho.rollouts.item import Item

ITEM: TypeAdapter[Item] = TypeAdapter(Item)


def read_items(path: Path) -> tuple[Item, ...]:
    """One JSON object a line, blank lines aside; raises InvalidInput that names the line."""
    # Not splitlines(): a JSON string may hold the other line separators of Unicode.
    lines = path.read_bytes().split(b"\n")
    items = tuple(_item(path, number, line) for number, line in enumerate(lines, 1) if line.strip())
    if not items:
        raise InvalidInput(f"{path} holds no items: write one JSON object a line")
    return items


def _item(path: Path, number: int, line: bytes) -> Item:
    try:
        item = ITEM.validate_json(line)
        json.dumps(item, allow_nan=False)
        return item
    except ValidationError as error:
        reason = error.errors(include_url=False, include_input=False)[0]["msg"]
        raise InvalidInput(f"{path}:{number}: not a JSON object ({reason})") from None
    except ValueError:
        raise InvalidInput(f"{path}:{number}: NaN and Infinity are no JSON: write null") from None
