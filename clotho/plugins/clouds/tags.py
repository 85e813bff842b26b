"""Labels in the tags of Modal, which bear less: escaped, and in pieces."""

from collections.abc import Mapping
from urllib.parse import quote, unquote

TAG_CHARACTERS = 60
"""Characters of a tag's value; Modal bears 63, of letters, digits, `-`, `.` and `_`."""


def tags_of(labels: Mapping[str, str]) -> dict[str, str]:
    """Each label as tags `label`, `label.1`, …; a value is escaped, and `-` is in front of each piece."""
    tags = {}
    for label, value in labels.items():
        escaped = quote(value, safe="").replace("_", "%5F").replace("~", "%7E").replace("%", "_")
        for number, at in enumerate(range(0, max(len(escaped), 1), TAG_CHARACTERS)):
            tags[f"{label}.{number}" if number else label] = f"-{escaped[at : at + TAG_CHARACTERS]}"
    return tags


def labels_of(tags: Mapping[str, str]) -> dict[str, str]:
    """The labels that `tags_of` made these of."""
    labels: dict[str, str] = {}
    for tag in sorted(tags, key=_place):
        label, _ = _place(tag)
        labels[label] = labels.get(label, "") + tags[tag].removeprefix("-")
    return {label: unquote(value.replace("_", "%")) for label, value in labels.items()}


def _place(tag: str) -> tuple[str, int]:
    label, _, number = tag.rpartition(".")
    return (label, int(number)) if label and number.isdigit() else (tag, 0)
