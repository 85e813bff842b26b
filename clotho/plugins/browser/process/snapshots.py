"""Accessibility trees as a model is shown them."""

import re

MOST_CHARS = 8_000
CUT = "\n[… cut at {:,} of {:,} characters: scroll doesn't change this; look for parts with browser_console]"
# f2e5 is element 5 of a frame
REF = re.compile(r" \[ref=(f?\d*e\d+)\]")
WRAPPER = re.compile(r"^\s*- (generic|group|none|presentation)( \[[^\]]*\])*:$")
INERT = re.compile(
    r"^\s*- (alert|article|banner|blockquote|caption|cell|code|complementary|contentinfo|definition|dialog"
    r"|emphasis|figure|form|generic|group|heading|iframe|img|insertion|list|listitem|main|navigation|paragraph"
    r"|region|row|rowgroup|search|separator|status|strong|table|term|text|time|columnheader|rowheader)\b"
)


def shown(tree: str, full: bool) -> str:
    """The tree, bounded; unless `full`, without wrappers and without refs of what can't be acted on."""
    text = tree if full else compact(tree)
    return text if len(text) <= MOST_CHARS else text[:MOST_CHARS] + CUT.format(MOST_CHARS, len(text))


def compact(tree: str) -> str:
    lines: list[str] = []
    wrappers: list[int] = []
    for line in tree.splitlines():
        depth = len(line) - len(line.lstrip())
        while wrappers and wrappers[-1] >= depth:
            wrappers.pop()
        # sites make elements of any role clickable; Playwright marks what the pointer changes over
        clickable = "[cursor=pointer]" in line
        if WRAPPER.match(line) and not clickable:
            wrappers.append(depth)
            continue
        # Playwright indents by two spaces: children of wrappers that are left out move up
        line = line[2 * len(wrappers) :]
        lines.append(REF.sub("", line) if INERT.match(line) and not clickable else line)
    return "\n".join(lines)


def elements(tree: str) -> int:
    """The number of elements that a shown tree has refs for."""
    return len(REF.findall(tree))
