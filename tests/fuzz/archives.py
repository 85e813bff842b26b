"""Archives as the supervisor writes them, and as a damaged or forged checkpoint could hold them."""

from dataclasses import dataclass, replace
from random import Random

BLOCK = 512
NUMBERS = (
    "0",
    "1",
    "-1",
    "511",
    "512",
    "513",
    "1073741824",
    "9" * 18,
    "9" * 19,
    "9" * 23,
    "9" * 40,
    "",
    " 1",
    "0x10",
    "1e9",
)
NAMES = (
    "work",
    "home",
    "work/a",
    "work/a/b",
    "work/a/b/c",
    "work/link",
    "work/../x",
    "work/.",
    "..",
    ".",
    "/",
    "",
    "//",
    "work//a",
    "nowhere",
    "nowhere/a",
    "/etc/passwd",
    "work/a/..",
    "home/x",
    "work/" + "n" * 255,
    "work/" + "n" * 256,
    "work/\n",
    "work/=",
    "work/ü",
    "w" * 5_000,
    "home/../work/a",
)
TYPES = "0125637x\0L"


@dataclass(frozen=True)
class Member:
    type: str
    path: str
    link: str | None = None
    content: bytes = b""
    map: tuple[str, ...] = ()
    """Numbers of a sparse file's map: how many segments, and where each starts, and its size."""
    real_size: str = "0"
    size: str | None = None
    """As the record says; by default there is none, and the header says it."""
    mode: str = "0000644"
    uid: str = "0000000"
    mtime: str = "1700000000.123456789"


TREE = (
    Member("5", "work", mode="0000755"),
    Member("5", "work/a", mode="0000755"),
    Member("0", "work/a/empty"),
    Member("0", "work/a/file", content=b"x" * 700),
    Member("1", "work/a/same", link="work/a/file"),
    Member("2", "work/a/link", link="../../outside"),
    Member("6", "work/fifo"),
    Member("0", "work/hole", content=b"y" * 20, map=("2", "100", "20", "4096", "0"), real_size="4096"),
    Member("5", "work/closed", mode="0000000"),
    Member("0", "work/closed/in", content=b"z"),
    Member("5", "home", mode="0000700"),
    Member("1", "home/same", link="work/closed/in"),
)


def packed(members: list[Member]) -> bytes:
    return b"".join(map(_member, members)) + bytes(2 * BLOCK)


def case(random: Random) -> bytes:
    members = list(TREE)
    for _ in range(random.choice((0, 1, 1, 2, 4))):
        at = random.randrange(len(members))
        match random.randrange(5):
            case 0:
                del members[at]
            case 1:
                members.insert(random.randint(0, len(members)), members[at])
            case _:
                members[at] = _changed(random, members[at])
        if not members:
            break
    content = packed(members)
    if random.random() < 0.3:
        content = _with_noise(random, content)
    return content


def _member(member: Member) -> bytes:
    records = [("path", member.path), ("mtime", member.mtime)]
    content = member.content
    if member.link is not None:
        records.append(("linkpath", member.link))
    if member.map:
        records += [("GNU.sparse.major", "1"), ("GNU.sparse.realsize", member.real_size)]
        content = _padded("".join(f"{number}\n" for number in member.map).encode()) + content
    if member.size is not None:
        records.append(("size", member.size))
    extended = b"".join(_record(name, value) for name, value in records)
    size = b"%011o" % len(content)
    return (
        _header(b"x", b"%011o" % len(extended), "0000644", "0000000")
        + _padded(extended)
        + _header(member.type.encode(), size, member.mode, member.uid)
        + _padded(content)
    )


def _record(name: str, value: str) -> bytes:
    rest = f" {name}={value}\n".encode()
    length = len(rest) + 1
    while len(str(length)) + len(rest) != length:
        length += 1
    return str(length).encode() + rest


def _header(type: bytes, size: bytes, mode: str, uid: str) -> bytes:
    fields = [b"name".ljust(100, b"\0"), mode.encode()[:8].ljust(8, b"\0"), uid.encode()[:8].ljust(8, b"\0")]
    fields += [
        uid.encode()[:8].ljust(8, b"\0"),
        size[:12].ljust(12, b"\0"),
        b"0".ljust(12, b"\0"),
        bytes(8),
        type,
    ]
    return b"".join(fields).ljust(BLOCK, b"\0")


def _padded(content: bytes) -> bytes:
    return content.ljust(-(-len(content) // BLOCK) * BLOCK, b"\0")


def _changed(random: Random, member: Member) -> Member:
    number = random.choice(NUMBERS)
    match random.randrange(10):
        case 0:
            return replace(member, type=random.choice(TYPES))
        case 1:
            return replace(member, path=random.choice(NAMES))
        case 2:
            return replace(member, link=random.choice(NAMES))
        case 3:
            return replace(member, size=number)
        case 4:
            return replace(member, real_size=number)
        case 5 if member.type == "0":
            valid = ["2", "100", str(len(member.content)), "4096", "0"]
            valid[random.randrange(5)] = number
            return replace(member, map=tuple(valid), real_size=random.choice(("4096", "9" * 18, number)))
        case 6:
            numbers = [random.choice(NUMBERS) for _ in range(random.randint(1, 200))]
            return replace(member, map=(random.choice(("1", "2", "100", *NUMBERS)), *numbers))
        case 7:
            return replace(member, mode=random.choice(("7777777", "0004755", "-1", "9", "")))
        case 8:
            return replace(member, uid=random.choice(("7777777", "-1", "")))
        case _:
            return replace(
                member, mtime=random.choice((*NUMBERS, "1.5", "-5.000000001", "1.99999999x", "1.-00000001"))
            )


def _with_noise(random: Random, content: bytes) -> bytes:
    changed = bytearray(content)
    for _ in range(random.randint(0, 4)):
        at = random.randrange(len(changed))
        match random.randrange(4):
            case 0:
                changed[at] ^= 1 << random.randrange(8)
            case 1:
                changed[at : at + random.randint(1, 600)] = b""
            case 2:
                changed[at:at] = random.randbytes(random.randint(1, 600))
            case _:
                changed[at : at + 1] = random.choice((b"\n", b" ", b"=", b"/", b"\0", b"9"))
        if not changed:
            break
    return bytes(changed[: random.randint(0, len(changed))]) if random.random() < 0.3 else bytes(changed)
