"""Items in the prompts of trainers' datasets."""

import json
from typing import Any

from clotho.errors import InvalidInput
from clotho.rollouts.item import Item


def item_of(prompt: Any) -> Item:
    """The item in a prompt, which is JSON text. Raises InvalidInput for another prompt."""
    try:
        item = json.loads(prompt)
    except (TypeError, ValueError):
        item = None
    if not isinstance(item, dict):
        raise InvalidInput(f"the prompt {str(prompt)[:80]!r} is no item: give the dataset items as JSON text")
    return item
