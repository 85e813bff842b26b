"""Adaptation of a replacement to the indentation of its file."""


def reindented(region: str, old: str, new: str) -> str:
    """`new` with the indentation that `region` has where `old` has another.

    The lines of `old` and `region` correspond, which says what each of the model's indentations stands for.
    Where that is contradictory, or `new` starts with an indentation that `old` lacks, `new` stays as it is.
    """
    meant: dict[str, str] = {}
    for ours, theirs in zip(old.split("\n"), region.split("\n"), strict=False):
        if ours.strip() and meant.setdefault(indent(ours), indent(theirs)) != indent(theirs):
            return new
    first = next((line for line in new.split("\n") if line.strip()), None)
    if first is None or indent(first) not in meant:
        return new
    return "\n".join(_shifted(line, meant) for line in new.split("\n"))


def indent(line: str) -> str:
    return line[: len(line) - len(line.lstrip(" \t"))]


def _shifted(line: str, meant: dict[str, str]) -> str:
    known = max((own for own in meant if indent(line).startswith(own)), key=len, default=None)
    return line if known is None or not line.strip() else meant[known] + line[len(known) :]
