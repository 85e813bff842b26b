"""Files as text: what is text at all, and the byte order mark and line ends that an edit must keep."""

from dataclasses import dataclass

from clotho.errors import InvalidInput

SAMPLE_BYTES = 8_192
MAX_UNDECODABLE_SHARE = 0.1
MARK = "\ufeff"


def is_binary(content: bytes) -> bool:
    """Whether `content` has a NUL near its start or is mostly not UTF-8."""
    sample = content[:SAMPLE_BYTES]
    return b"\0" in sample or sample.decode(errors="replace").count("\ufffd") > MAX_UNDECODABLE_SHARE * len(
        sample
    )


def is_text(content: bytes) -> bool:
    """Whether `content` can be edited as text: it is UTF-8 and has no NUL."""
    return b"\0" not in content and content.decode(errors="ignore").encode() == content


@dataclass(frozen=True)
class TextFile:
    """A text with newlines, and the form it has on disk."""

    text: str
    mark: bool = False
    crlf: bool = False
    content: bytes = b""
    """What was read; with mixed line ends, `encoded(text)` differs from it."""

    @classmethod
    def decoded(cls, content: bytes, path: str) -> "TextFile":
        """Raises InvalidInput where `content` is not UTF-8 text: editing would destroy it."""
        if not is_text(content):
            raise InvalidInput(f"{path} is not UTF-8 text")
        text = content.decode()
        crlf = text.count("\r\n") * 2 > text.count("\n")
        return cls(
            text.removeprefix(MARK).replace("\r\n", "\n") if crlf else text.removeprefix(MARK),
            text[:1] == MARK,
            crlf,
            content,
        )

    def encoded(self, text: str) -> bytes:
        """`text`, an edited version, in the form of this file."""
        if self.crlf:
            text = text.replace("\r\n", "\n").replace("\n", "\r\n")
        return ((MARK if self.mark else "") + text).encode()
