"""Fuzzing with a time budget: made-up cases, one after the other, until one breaks what must hold."""

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from random import Random
from typing import TypeVar

Case = TypeVar("Case")
SHOWN = 2_000


@dataclass(frozen=True)
class Fuzzer:
    """Cases for `seconds`, each made from its number alone: `first` starts at another one.

    A case that fails is named by its number; `--fuzz-first NUMBER --fuzz-seconds 0` runs it again, alone.
    """

    seconds: float
    first: int = 0

    def run(self, make: Callable[[Random], Case], check: Callable[[Case], object]) -> int:
        """How many cases were checked. Raises AssertionError, naming the case, for any exception of `check`."""
        number, end = self.first, time.monotonic() + self.seconds
        while number == self.first or time.monotonic() < end:
            case = make(Random(number))
            try:
                check(case)
            except Exception as error:
                raise AssertionError(_finding(number, case)) from error
            number += 1
        return number - self.first

    async def run_async(
        self, make: Callable[[Random], Case], check: Callable[[Case], Awaitable[object]]
    ) -> int:
        """The same for a `check` that is awaited."""
        number, end = self.first, time.monotonic() + self.seconds
        while number == self.first or time.monotonic() < end:
            case = make(Random(number))
            try:
                await check(case)
            except Exception as error:
                raise AssertionError(_finding(number, case)) from error
            number += 1
        return number - self.first


def _finding(number: int, case: object) -> str:
    text = repr(case)
    return f"case {number}: {text if len(text) <= SHOWN else f'{text[:SHOWN]}… ({len(text)} characters)'}"


def mutated(random: Random, text: str, pieces: tuple[str, ...]) -> str:
    """`text` with up to five edits: a slice cut out, doubled or moved, or one of `pieces` put in."""
    for _ in range(random.randint(0, 5)):
        start, end = sorted((random.randint(0, len(text)), random.randint(0, len(text))))
        part = text[start:end]
        match random.randrange(5):
            case 0:
                text = text[:start] + text[end:]
            case 1:
                text = text[:end] + part[:1_000] + text[end:]
            case 2:
                text = text[:start] + text[end:] + part
            case 3:
                text = text[:start] + random.choice(pieces) + text[end:]
            case _:
                text = text[:start] + random.choice(pieces) + text[start:]
    return text


def soup(random: Random, pieces: tuple[str, ...], longest: int = 30) -> str:
    """Up to `longest` of `pieces` and single characters, in any order."""
    count = random.randint(0, longest)
    return "".join(
        random.choice(pieces) if random.random() < 0.8 else character(random) for _ in range(count)
    )


def character(random: Random) -> str:
    """Any character that UTF-8 can hold: control, combining, bidirectional and astral ones often."""
    ranges = (
        (0x00, 0x7F),
        (0x80, 0xFF),
        (0x300, 0x36F),
        (0x2000, 0x206F),
        (0xE000, 0xFFFF),
        (0x10000, 0x10FFFF),
    )
    return chr(random.randint(*random.choice(ranges)))
