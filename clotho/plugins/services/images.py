"""Images that a model names: a file of the sandbox, a URL of the web, or a data URL."""

import base64
import binascii

from clotho.errors import InvalidInput
from clotho.plugins.web.fetching import Fetcher
from clotho.tools import shell
from clotho.tools.tool import CallContext

MOST_BYTES = 8 << 20
STARTS = {
    "image/png": (b"\x89PNG\r\n\x1a\n",),
    "image/jpeg": (b"\xff\xd8\xff",),
    "image/gif": (b"GIF87a", b"GIF89a"),
}


async def image(named: str, context: CallContext, fetcher: Fetcher) -> bytes:
    """The image that `named` means. Raises InvalidInput for what is none, or is too large."""
    if named.startswith("data:"):
        content = _data(named)
    elif named.startswith(("http://", "https://")):
        content = (await fetcher.fetch(named)).content
    else:
        found = await context.sandbox.read_file(named, MOST_BYTES, shell.last_command(context))
        if found.error is not None and found.error != "too_large":
            raise InvalidInput(f"{named[:200]} can't be read: {found.error}")
        # in place of a file that is too large, for the check below
        content = b"\0" * (MOST_BYTES + 1) if found.error else found.content
    if len(content) > MOST_BYTES:
        raise InvalidInput(f"The image has more than {MOST_BYTES >> 20} MiB")
    media_type(content)
    return content


def media_type(content: bytes) -> str:
    """The image's type, by how it begins."""
    for name, starts in STARTS.items():
        if content.startswith(starts):
            return name
    if content[:4] == b"RIFF" and content[8:12] == b"WEBP":
        return "image/webp"
    raise InvalidInput("It isn't an image: PNG, JPEG, GIF and WebP can be seen")


def data_url(content: bytes) -> str:
    return f"data:{media_type(content)};base64,{base64.b64encode(content).decode()}"


def _data(url: str) -> bytes:
    head, comma, data = url.partition(",")
    if not comma or not head.endswith(";base64"):
        raise InvalidInput("A data URL of an image is in base 64: data:image/png;base64,…")
    return decoded(data)


def decoded(data: str) -> bytes:
    try:
        return base64.b64decode("".join(data.split()), validate=True)
    except (binascii.Error, ValueError):
        raise InvalidInput("The image's base 64 is damaged") from None
