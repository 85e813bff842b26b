"""The fields of a relay's requests and answers."""

import struct


def path(*names: str) -> bytes:
    """Names, each after its length. The relay refuses names that no file can have."""
    encoded = (name.encode(errors="surrogateescape") for name in names)
    return b"".join(struct.pack(">H", min(len(name), 0xFFFF)) + name for name in encoded)


def number(value: int) -> bytes:
    return struct.pack(">Q", value)


def size(value: int) -> bytes:
    return struct.pack(">I", value)


def two_numbers(answer: bytes) -> tuple[int, int]:
    """The two numbers of an answer. Raises ValueError for another kind of answer."""
    if len(answer) != 16:
        raise ValueError("a damaged answer of a relay")
    first, second = struct.unpack(">QQ", answer)
    return first, second
