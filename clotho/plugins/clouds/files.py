"""Files that a program finds whole: written beside their place first."""

import secrets
from collections.abc import Mapping

MOVE = 'while [ $# -gt 0 ]; do chmod 755 "$1" && mv -f "$1" "$2" || exit 1; shift 2; done'


def staged(files: Mapping[str, bytes]) -> tuple[dict[str, bytes], list[str]]:
    """The files by the path to write first, and the command that then moves them all to their places."""
    first = {path: f"{path}.{secrets.token_hex(4)}" for path in files}
    moves = [each for path in files for each in (first[path], path)]
    return {first[path]: content for path, content in files.items()}, ["sh", "-c", MOVE, "sh", *moves]
